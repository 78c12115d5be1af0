// Package fence appends to a stream of NATS JetStream as the only writer of it, although nothing
// stops an earlier writer that does not know yet that it was replaced.
//
// The last message of each batch is the lead record, which replaces the record before it. Each
// batch expects that the lead record is the one of its predecessor and is stored whole or not at
// all. A writer that opens the stream stores a lead record of its own, so from then on the server
// refuses the batches of all earlier writers: they are deposed.
//
// One batch is in flight at a time. That makes each answer of the server unambiguous:
//
//	10071 wrong last sequence   the lead record tells: this batch (it was stored), or another writer
//	10164                       another fenced write is in flight: the same batch again
//	10176, no responders        nothing was stored: the same batch again
//	timeout                     unknown: the same batch again; if it was stored, 10071 follows
package fence
