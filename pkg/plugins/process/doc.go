// Package process is the handler kind `process`: it passes batches of deltas over gRPC to a program
// that runs beside the router, and reads verdicts and events. github.com/hashicorp/go-plugin
// defines the handshake of router and program.
//
// The parts of the package, in the order in which a batch passes them:
//
//	handler         splits a batch into calls; if the plugin is lost during a call, repeats it alone and halves it until the faulty delta is alone
//	supervisor      keeps one process running, restarts a lost one, and pauses the restarts if they do not help
//	process         one process that is ready: its connection, its health, its end
//	internal/child  the program in the operating system: a sealed copy that is started, drained, and killed with all its descendants
//	host            the functions of the router for the plugin: look-ups, the KV store, the log
//
// A plugin is not sandboxed: it has all rights of the router's user. Only its cost for the router
// is limited. docs/ABI.md describes the protocol.
package process
