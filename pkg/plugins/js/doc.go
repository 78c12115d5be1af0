// Package js is the handler kind `js`: it runs a handler that is written in JavaScript, in an
// engine that is a WebAssembly module. Package guest runs the engine, with the same limits and
// grants as a module of the kind `wasm`.
//
// The parts of the package:
//
//	config      the kind and its configuration
//	engine      the module of the engine, QuickJS-NG, and its pinned content
//	protocol    the imports of the engine, and the start of an instance
//	session     passes deltas to the handler, and reads its answers
//	vm          calls of the engine: values, texts, exceptions
//	prelude.js  the environment of the handler
//
// A handler has no files, modules, timers or sockets. Its clock and random numbers depend on the
// deltas only, unless they are granted. The code of the engine is compiled once in a process. Each
// instance keeps an image of its memory after the start, and gets that back after a trap.
package js
