// Package statefile opens, verifies and mends the file of the checkpoint, and runs transactions in
// it.
//
// The file is a bbolt database. Its pages and the checksums of its values are verified before bbolt
// sees them, because bbolt's own checks are panics. A file that is damaged is put aside, and a new
// one begun.
package statefile
