// Package deltarouter is the SDK for handlers in Go. A handler is a function that takes a change of
// a Kubernetes object and returns the events to deliver. It runs in a sandbox inside the router:
//
//	package main
//
//	import deltarouter "github.com/deltarouter/deltarouter/sdk/go"
//
//	var _ = deltarouter.Handle(handle)
//
//	func main() {} // never called, but Go wants one
//
//	func handle(d deltarouter.Delta) ([]deltarouter.Event, error) {
//		return []deltarouter.Event{{Data: map[string]string{"pod": d.Name}}}, nil
//	}
//
// The Go toolchain builds it:
//
//	GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -o handler.wasm .
//
// A handler is registered in a package-level variable or an init function, because the router
// starts a module as a library and does not call main. A handler that needs its configuration, or
// other one-time initialisation, uses [Setup].
//
// # Execution
//
// The router runs several instances of a module. Each has its own memory and handles one call at a
// time. So a handler may keep state in variables without a lock. That state belongs to one
// instance, which sees an arbitrary part of the changes. It is lost after a crash, after 100,000
// calls, and when three quarters of the memory limit are used.
//
// A panic fails only the change that was being handled. Goroutines run only while a handler runs.
// There is no file system, no environment and no network. Output to stdout, stderr and log/slog
// becomes lines of the router's log.
//
// # Tests
//
// The package builds on every platform, so plain go test can call a handler. The package
// deltaroutertest runs a handler on files of changes and compares the events with the expected
// ones.
package deltarouter
