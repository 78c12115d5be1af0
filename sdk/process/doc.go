// Package process is the SDK for native plugins in Go. A plugin is a program that the router
// starts. It takes changes of Kubernetes objects and returns the events to deliver:
//
//	package main
//
//	import (
//		"context"
//
//		"github.com/deltarouter/deltarouter/sdk/process"
//	)
//
//	func main() {
//		process.Serve(process.Plugin{Name: "names", Version: "1.0.0", Setup: process.Handle(handle)})
//	}
//
//	func handle(ctx context.Context, d process.Delta) ([]process.Event, error) {
//		return []process.Event{{Data: map[string]string{"pod": d.Name}}}, nil
//	}
//
// A native plugin is not sandboxed, unlike a guest in WebAssembly: it has all rights of the
// router's user. Use it where a sandbox does not suffice, for example for a cloud SDK or a local
// socket.
//
// # Execution
//
// The router runs one process per handler. It calls the process from several goroutines at once,
// but never twice for one object at the same time. It kills and restarts a process that ends, hangs
// or does not answer in time, and repeats the calls that got no answer. So a handler must tolerate
// a repeated change. A panic fails only the change that was being handled.
//
// The working folder of the plugin is empty, private, and removed when the process ends. The
// configuration lists its environment variables. Its output becomes lines of the router's log. When
// the router ends, the standard input of the plugin ends, and Serve ends the process.
//
// # Tests
//
// A handler is a function that tests can call. The package processtest runs a whole plugin in the
// process of the test, over gRPC, with a fake router.
package process
