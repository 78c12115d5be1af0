// Package process is what the author of a native plugin in Go imports. A plugin is a program of its
// own that the router starts; it is given changes of Kubernetes objects and returns the events to
// deliver:
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
// Unlike a guest in WebAssembly a native plugin is not sandboxed: it may do all that the router's
// user may. Use it for what a sandbox cannot give, such as a cloud's SDK or a local socket.
//
// # What the router does with it
//
// It runs one process per handler and calls it from several goroutines at once, never for one
// object at the same time. A process that ends, hangs or does not answer in time is killed and
// started again, and what it was asked is asked again: a handler must bear to see a change twice. A
// panic fails the one change that was handled.
//
// The plugin's working folder is empty, private and removed when the process ends. Its environment
// is what the configuration lists. What it prints becomes lines of the router's log. When the
// router is gone, the plugin's standard input ends, and Serve ends the process.
//
// # Tests
//
// A handler is a function: call it. The package processtest runs a whole plugin in the test's
// process, over gRPC, with a router that is made up.
package process
