// Package wasm is the handler kind `wasm`: it passes batches of deltas to a WebAssembly module, and
// reads verdicts and events.
//
// The parts of the package, in the order in which a batch passes them:
//
//	handler            splits a batch into calls; after a trap halves it until the faulty delta is alone
//	pool               lends an instance to one call at a time, and discards instances that trapped or are worn out
//	internal/engine    compiles the module once, makes instances of it, and calls them
//	internal/host      the functions that guests import, and the state of a call
//	internal/fetch     the HTTP requests of guests
//	internal/abi       the encoding of batches and answers
//	meter              rewrites the module so that fuel and stack are counted and guests pause
//
// A guest has no files, environment, arguments or sockets. Its memory, output, messages and log
// lines are limited. The host checks the bounds of each answer in the guest's memory, and copies it
// before it is parsed. docs/ABI.md describes the ABI.
package wasm
