// Package segment stores records in files that are only appended to, and finds those of a key again
// without reading the others. It knows nothing of the records.
//
//	records ──► frame, compressed ──► segment ──► index, once the segment is sealed
//
// A segment is the magic of the format and frames. A frame has the records of a moment, so that a
// crash loses those of one moment. It is
//
//	length of the body (4 bytes, little endian), length of the unpacked body (4)
//	begin and end (8 each): the times of its first and last record, in microseconds since 1970
//	CRC32C (4) of these fields and of the body
//	body: zstd
//
// The body unpacked has, for each record, as varints: the microseconds since the record before, or
// since the begin; the number of keys; the length of the record; then the keys (4 bytes each) and
// the record. Times do not decrease.
//
// The index has the frames and, for each key, the numbers of those with a record of it. Keys are
// hashes, so a caller compares what it finds. A segment without an index, because the process ended
// before it was sealed, is read as a whole once. A frame that is incomplete at the end of a segment
// was being written when the process or the machine ended; a damaged one ends the segment, too.
package segment
