// Package deltarouter is what the author of a handler imports. A handler is a function that is
// given a change of a Kubernetes object and returns the events to deliver; it runs in a sandbox
// inside the router:
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
// It is built with the Go toolchain alone:
//
//	GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -o handler.wasm .
//
// Registration happens in a package-level variable (or in an init function), because the router
// starts a module as a library: main is not called. A handler that needs its configuration, or
// anything else that is made once, uses [Setup].
//
// # What the router does with it
//
// It runs several instances of a module, each with a memory of its own and one call at a time. So a
// handler may keep state in variables without a lock, but that state is one instance's, it sees an
// arbitrary share of the changes, and it is gone after a crash, after 100,000 calls and when three
// quarters of the memory limit are used.
//
// A panic fails the one change that was handled. A goroutine runs only while a handler runs. There
// is no file system, no environment and no network; what is printed to stdout or stderr becomes
// lines of the router's log, as does what is logged through log/slog.
//
// # Tests
//
// The package builds on every platform, so a handler is tested with plain go test: call it. The
// package deltaroutertest runs one over files of changes and the events that are expected.
package deltarouter
