// Package wasm is the handler kind `wasm`: it hands batches of deltas to a WebAssembly module and
// reads verdicts and events back.
//
// A batch goes through these hands:
//
//	handler            cuts it into calls, and on a trap halves it until only the culprit fails
//	pool               lends an instance, one call at a time, and throws away what trapped or grew old
//	internal/engine    compiles the module once, makes instances of it, and speaks with them
//	internal/host      the functions that guests import, and what a call has done so far
//	internal/fetch     the HTTP requests of guests
//	internal/abi       the bytes of batches and answers
//	meter              rewrites the module so that fuel and stack are counted and guests pause
//
// A guest has no files, environment, arguments or sockets. Its memory, output, messages and log
// lines are bounded. Everything it answers is checked against its memory's bounds and copied before
// it is looked at. The ABI is described in docs/ABI.md.
package wasm
