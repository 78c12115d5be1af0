// Package extism is the handler kind `extism`: it runs modules that were written for Extism
// (https://extism.org), with any of its plug-in development kits. Package guest runs them, with the
// same limits and grants as a module of the kind `wasm`.
//
// The parts of the package:
//
//	config     the kind and its configuration
//	protocol   the check and the start of a module
//	functions  the functions that modules import, as the kernel and the hosts of Extism define them
//	services   those of them that need the router: variables, requests, look-ups, the log
//	memory     the blocks that a guest shares with the host, outside of its own memory
//	session    passes deltas to a guest as JSON, one per call, and reads its answers
//
// The host is part of the router, and Extism's kernel, a module of its own, is not used: a call of
// a host function is a call into Go, and not into a second guest.
package extism
