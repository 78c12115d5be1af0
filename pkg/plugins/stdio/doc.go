// Package stdio is the handler kind `stdio`: it runs a command, which is a WebAssembly module with
// a main function. The command gets one delta per line on stdin, and prints one answer per line.
// Package guest runs the command, with the same limits as a module of the kind `wasm`.
//
// The parts of the package:
//
//	config    the kind and its configuration
//	protocol  checks a module, and starts its instances
//	session   passes deltas to one instance, and reads its answers
//
// A command runs on from delta to delta. Whenever it asks for a byte of stdin that does not exist
// yet, it is suspended until the next delta. So it needs no goroutine that waits, and one goroutine
// at a time uses its memory.
//
// A command has arguments, an environment, stdin, stdout, stderr, and the files that the
// configuration names, in memory. It has no sockets, no functions of the host, and nothing to write
// to. Its clock and random numbers depend on the deltas only, unless they are granted.
package stdio
