// Package fingerprint makes keyed hashes of the values of an object whose values must not reach the
// disk, and recalls from them, and from the present state, which values a former state had.
//
// The fingerprints of an object are a JSON text with the structure and the names of its fields, in
// which the kind of a value and its HMAC-SHA256 (cut to 128 bits) stand for the value. The hash is
// of the uid of the object, the path and the value, so equal values of two objects, or of two
// fields, have different hashes. The text has neither the identity nor a value. A guess of a
// value cannot be tested without the key.
//
// A container has one hash in place of those of its fields if it has more than [MaxFields], if the
// object would have more than [MaxValues] hashes, or if it is below [MaxDepth] containers.
package fingerprint

// The bounds of the fingerprints of an object.
const (
	MaxFields = 512
	MaxValues = 2048
	MaxDepth  = 16
)
