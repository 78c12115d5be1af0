// Package statefile opens, verifies and repairs the file of the checkpoint, and runs transactions
// in it.
//
// The file is a bbolt database. Its pages and the checksums of its values are verified before bbolt
// reads them, because bbolt panics on damage. A damaged file is moved away, and a new one begun.
//
// A value is a payload, compressed if that pays, with the checksum of its place, its key and its
// bytes ([Codec]). A [Seal] is a sum of all values of a file.
package statefile
