// Package value encodes the values of the state file: a payload, compressed if that pays, with the
// checksum of its place, its key and its bytes. A [Seal] is a sum of all values of a file.
package value
