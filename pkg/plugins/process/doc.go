// Package process is the handler kind `process`: it hands batches of deltas to a program that runs
// beside the router, over gRPC, and reads verdicts and events back. Program and router find each
// other as github.com/hashicorp/go-plugin has it.
//
// A batch goes through these hands, each in a file of its own:
//
//	handler     cuts it into calls; a batch that the plugin was lost over is given again, alone, and halved until only the culprit fails
//	supervisor  keeps one process running, starts it again when it is lost, and leaves it alone for a while if that does not help
//	process     one process that is ready: its connection, its health, its end
//	internal/child  the program as the operating system has it: a sealed copy that is started, drained, and killed with all that it started
//	host        what the plugin may ask of the router: look-ups, its memory, the log
//
// A plugin is not sandboxed: it may do all that the router's user may. What is bounded is what it
// costs the router. The protocol is described in docs/ABI.md.
package process
