// Package checkpoint keeps on disk the state that a restart must not lose: the objects and the
// position of each watch, the backlog and the dead letters (see [Letters]) of each route, and the
// memory of handlers. It is a file that one router owns, state.db; cuts are written by one
// writer.Writer.
//
//	informer ──Dirty──┐                       ┌──► state.db (bbolt)
//	                  ├─ Collector ─► Writer ─┤
//	pipeline ──Dirty──┘                  ▲    └──► closes the gates: transit.State.Durable
//	informer ──Gate─────────────────────┘
//
// # Cuts
//
// A [Cut] is what changed since the cut before it, in all watches and routes, as of one instant. It
// is one transaction: after a crash the file holds the last cut that was written, whole. Since the
// objects, the resourceVersion up to which the watch was fed and the deltas that are pending belong
// to the same instant, the watch can go on from there: what happened after the cut is seen again,
// and what was delivered after it is delivered again. So a crash makes duplicates of what was in
// flight or acknowledged since the last cut, and loses nothing.
//
// # The gate
//
// One thing could be lost: an object that appeared after the last cut, was delivered, and was
// deleted while the router was down and the watch could not be resumed. Its deletion would not be
// noticed. So a new object (an intent) is on disk before the first delivery about it, in the state
// that is delivered: filters and expressions that are asked about the delete need more than its
// identity. Writer.Gate registers it and gives the channel to wait for. Intents are written 10 ms
// after the first of them, all together. A cut that holds the object in that state or a later one,
// or its end, ends the intent; by uid, because an intent may be registered while a cut is made.
//
// # Guarantees
//
//   - [DB.Write] and a closed gate mean: on disk, synced (fdatasync), as far as the disk keeps its
//     word. A write that failed has no effect, or its whole effect, and may be repeated.
//   - A write that fails keeps the gates closed and is tried again, merged with what came later.
//     Nothing is given up, but what changes meanwhile is held in memory: one state for each object
//     and delta.
//   - What handlers remember is collected with the backlogs of the routes, and the application
//     collects it last: what a handler had written when its route was done with a delta is in the
//     cut that says so, or in one before.
//   - What was written comes back as it was, or not at all: see below. The gap is a disk that
//     brings back an old file as a whole.
//   - Of Secrets (of the core group) only the identity is written, in objects as in deltas. The
//     file has mode 0600, its folder 0700.
//   - Never a panic and never a crash loop: a file that is damaged is renamed to
//     state.db.corrupt-<time>, with one line in the log, and a new one is begun. The newest three
//     such files are kept. A file that is locked or of a newer format is an error and is left
//     untouched.
//   - The file does not shrink while it is in use. When it is opened, and more than half of it and
//     more than 64 MiB hold nothing, it is rewritten without that; if there is no room for both, it
//     stays as it is.
//
// # Format on disk
//
// The file is a bbolt database with pages of 4096 bytes:
//
//	meta/format                     format and oldest format whose readers understand it: 2+2 bytes, CRC32C: 4 (the same for ever)
//	meta/seal                       how many values there are in all, and the sum of their checksums
//	meta/cluster                    uid of the namespace kube-system, where all watches agree
//	watches/<id>/state              relisting, fed
//	watches/<id>/cluster            uid of the namespace kube-system of the cluster that the objects are of; not there: meta/cluster
//	watches/<id>/objects/<ns>\0<n>  a byte (1: identity only) and the JSON
//	watches/<id>/intents/<uid>\0<ns>\0<n>
//	watches/<id>/order/<uid>\0<ns>\0<n>  a number: the intents ascend as they came (since format 4)
//	watches/<id>/states/<uid>\0<ns>\0<n>  the JSON that was delivered last, but of Secrets (since format 6)
//	routes/<name>/state             since when the route is not configured
//	routes/<name>/owed/<id>         a delta: attempts, flags, op, source, time, sinks that are done, resource, Old, New; what the rules about
//	                                time say of it stands among the sinks, where older versions do not mind it (since format 5)
//	routes/<name>/rules/<kind><key> what a rule about time knows under a key (since format 5), or what watches has yet to put through,
//	                                which older versions leave where it is
//	undelivered/state               the number of the dead letter that was written last (since format 2)
//	undelivered/entries/<id>        flags, time, route, sink, error, and the delta as above
//
// Each value but meta/format is one byte (0: as it is, 1: zstd), the CRC32C (4 bytes) of its place,
// its key and its stored bytes, and those bytes. bbolt sums up its meta pages only; so Open walks
// the pages itself, checks each value and compares the seal, which notices values that are missing.
// Only a file that is found in order is given to bbolt, whose own checks are panics. That costs one
// read of the file, about as long as copying it. If only the newer of the two meta pages is
// damaged, the file is as it was one transaction earlier, and that is what is used, with a warning.
//
// A version that adds something raises [Format] and keeps the oldest reader where it is, if older
// versions can do without what it added: then a rollback finds its state. An older version stamps
// its own number again, so that the newer one knows that what it had added may be out of date.
package checkpoint
