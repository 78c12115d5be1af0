// Package wasm is the handler kind `wasm`: it hands batches of deltas to a WebAssembly module and reads verdicts and events back.
//
// A batch goes through these hands, each in a file of its own:
//
//	handler  cuts it into calls, and on a trap halves it until only the culprit fails
//	pool     lends an instance, one call at a time, and throws away what trapped or grew old
//	abi      the seam: how an instance is spoken to. v1 is the ABI rtr_v1 (batch: what goes in, answer: what comes out)
//	engine   compiles the module once and makes instances of it; no other file instantiates anything
//
// A guest has no files, environment, arguments or sockets. Its memory, output, messages and log lines are bounded. Everything it
// answers is checked against its memory's bounds and copied before it is looked at. The ABI is described in docs/PLUGINS.md.
package wasm
