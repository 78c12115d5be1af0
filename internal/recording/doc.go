// Package recording writes the changes of a router's sources to a file and reads them again:
// `router record` makes recordings of a cluster, and `router replay` runs a configuration on them
// without a cluster.
//
//	source ──Delta──► Writer ──NDJSON, compressed──► file ──► Reader ──Line──► source without a cluster
//
// A recording consists of lines of JSON, optionally compressed with zstd. The first is the
// [Header]; each other is a [Line] with a time, a source, an op, and the object in the form of the
// source's cache. The first list of a source consists of lines with [Existing] and ends with
// [Synced]. The last line of a complete recording is [End]. docs/TESTING.md describes the format.
//
// A recording is untrusted: a [Reader] bounds the length of a line and the unpacked size, and
// checks all lines. It reads an incomplete recording up to its last whole line.
package recording
