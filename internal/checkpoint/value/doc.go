// Package value makes the values of the state file: a payload, compressed where that pays, with the
// checksum of its place, its key and its bytes. A [Seal] sums up all values of a file.
package value
