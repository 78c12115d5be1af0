// Package wasm is the handler kind `wasm`: it passes batches of deltas to a WebAssembly module, and
// reads verdicts and events. Package guest runs the module.
//
// A guest has no files, environment, arguments or sockets. Its memory, output, messages and log
// lines are limited. The host checks the bounds of each answer in the guest's memory, and copies it
// before it is parsed. docs/ABI.md describes the ABI.
package wasm
