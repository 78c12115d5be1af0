// Package recording writes down what the sources of a router saw, and reads it again: `router
// record` makes recordings of a cluster, and `router replay` lets a configuration work on them
// without one.
//
//	source ──Delta──► Writer ──NDJSON, compressed──► file ──► Reader ──Line──► source without a cluster
//
// A recording is lines of JSON, compressed with zstd or not. The first is the [Header], each that
// follows a [Line]: when, which source, what, and the object as the source keeps it. The first list
// of a source comes as lines of [Existing], and ends with [Synced]; [End] is the last line of a
// recording that was not cut off. docs/TESTING.md describes the format.
//
// A recording may come from anywhere: a [Reader] bounds the length of a line and what is unpacked,
// checks all that it hands on, and reads what was cut off up to its last whole line.
package recording
