// Package meter rewrites a WebAssembly module so that the instructions it executes and the stack it uses are bounded.
package meter
