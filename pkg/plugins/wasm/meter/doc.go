// Package meter rewrites a WebAssembly module so that its instructions are bounded.
package meter
