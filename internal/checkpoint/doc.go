// Package checkpoint keeps on disk the state that a restart must not lose: the objects and the
// position of each watch, the backlog and the dead letters (see [Letters]) of each route, and the
// kv of handlers. It is one file, state.db, with a journal, that one router owns; one [Writer]
// writes the cuts while the router runs, at the pace that a budget of CPU allows, and the intents
// at once. Changes that could not be written are merged with later ones.
//
//	informer ──Dirty──┐                       ┌──► state.db (bbolt), state.db.journal
//	                  ├─ Collector ─► Writer ─┤
//	pipeline ──Dirty──┘                  ▲    └──► closes the gates: transit.State.Durable
//	informer ──Gate─────────────────────┘
//
// # Cuts
//
// A [Cut] has the changes since the cut before it, in all watches and routes, as of one instant. It
// is one transaction: after a crash the file has the last written cut, complete. The objects, the
// applied resourceVersion of the watch and the pending deltas belong to the same instant, so the
// watch can resume from there: changes after the cut arrive again, and deltas that were delivered
// after it are delivered again. A crash therefore duplicates deltas that were in flight, or
// acknowledged since the last cut, and loses none.
//
// # The gate
//
// One change could be lost: an object that appeared after the last cut, was delivered, and was
// deleted while the router was down and the watch could not resume. Its deletion would not be
// noticed. So a new object (an intent) is on disk before the first delivery about it, in the
// delivered state: filters and expressions need more than its identity to evaluate the delete.
// Writer.Gate registers it and returns the channel to wait for. An intent is written at once, and
// those that come during a write together after it. A cut that has the object in that state or a
// later one, or its end, ends the intent; by uid, because an intent may be registered while a cut
// is made.
//
// # The journal
//
// Intents are appended to the journal, see [DB.Log] and statefile.Journal, because a transaction
// for each costs several times as much. Each transaction begins with the intents of the journal
// that it does not end, and begins the next generation of the journal, whose number is in the state
// file: so the records of the generations before do not count any more. Both files together have
// the content of a state.db in which each intent is a transaction. The leader of a fleet commits
// its intents instead, 10 ms apart, because its standbys get transactions only.
//
// # Guarantees
//
//   - After [DB.Write], and when a gate is closed, the data is on disk, synced (fdatasync), as far
//     as the disk is reliable. A failed write has no effect, or its whole effect, and may be
//     repeated.
//   - A failed write keeps the gates closed and is retried, merged with later changes. No change is
//     given up, but the changes in the meantime take memory: one state for each object and delta.
//   - The kv of handlers is collected with the backlogs of the routes, and last: everything that a
//     handler had written when its route was done with a delta is in the cut that says so, or in
//     an earlier one.
//   - Data is read as it was written, or not at all: see below. The exception is a disk that
//     restores an old file as a whole.
//   - Of Secrets (of the core group) only the identity is written, in objects as in deltas, and of
//     objects and pending deltas also keyed hashes of the values and the names of their fields, see
//     [SetKey]. The file has mode 0600, its folder 0700.
//   - A damaged file causes no panic and no crash loop: it is renamed to state.db.corrupt-<time>,
//     with one line in the log, and a new one is begun. The newest three such files are kept. A
//     file that is locked or of a newer format is an error and is left unchanged.
//   - The file does not shrink while it is in use. If more than half of it and more than 64 MiB are
//     free when it is opened, it is rewritten; without room for both files it stays as it is.
//
// # Format on disk
//
// The file is a bbolt database with pages of 4096 bytes:
//
//	meta/format                     format and the oldest format whose readers can read the
//	                                file: 2+2 bytes, CRC32C: 4 (never changes)
//	meta/seal                       the number of values and the sum of their checksums
//	meta/cluster                    uid of the namespace kube-system, if all watches agree
//	meta/journal                    the generation of the journal (since format 8). A journal is
//	                                read only with a file of the same format: another version
//	                                may have written to the file since
//	meta/position                   only in a fleet, see below: term, number, and the seal of all
//	                                other values
//	watches/<id>/state              relisting, applied
//	watches/<id>/reached            the latest version of which something is applied: applied, or a later
//	                                one, of whose events some may be missing. Absent: applied
//	watches/<id>/cluster            uid of the namespace kube-system of the cluster of the
//	                                objects; absent: meta/cluster
//	watches/<id>/kept               the fields that all objects have; only of watches with
//	                                cache: auto, whose ids older versions do not know
//	watches/<id>/objects/<ns>\0<n>  a byte (1: identity only) and the JSON
//	watches/<id>/intents/<uid>\0<ns>\0<n>
//	watches/<id>/order/<uid>\0<ns>\0<n>
//	                                a number: the order of the intents (since format 4)
//	watches/<id>/states/<uid>\0<ns>\0<n>
//	                                the JSON that was delivered last, except of Secrets (since
//	                                format 6)
//	watches/<id>/fingerprints/<ns>\0<n>
//	                                of a Secret: the id of the key, the uid and the version of the
//	                                object, and the keyed hashes of its values, as package
//	                                fingerprint makes them (since format 7)
//	routes/<name>/state             the time since which the route is not configured
//	routes/<name>/owed/<id>         a delta: attempts, flags, op, source, time, sinks that are
//	                                done, resource, Old, New; the facts of the rules about time
//	                                are an entry among the sinks, which older versions ignore
//	                                (since format 5); of Secrets it has the fingerprints of Old
//	                                and New, too (since format 7)
//	routes/<name>/rules/<kind><key> the state of a rule about time under a key, or the pending
//	                                objects of watches, which older versions keep (since format 5);
//	                                or the counts of the route, which older versions keep as they
//	                                are
//	undelivered/state               the number of the last dead letter (since format 2)
//	undelivered/entries/<id>        flags, time, route, sink, error, and the delta as above; the
//	                                record of a failed call is among the facts of the rules, so
//	                                that older versions ignore it
//
// Each value but meta/format is one byte (0: as it is, 1: zstd), the CRC32C (4 bytes) of its place,
// its key and its stored bytes, and those bytes. bbolt has checksums of its meta pages only, so
// Open walks the pages itself, checks each value and compares the seal, which shows missing values.
// bbolt opens only an intact file, because its own checks panic. That costs one read of the file,
// about as long as copying it. If only the newer of the two meta pages is damaged, the file is used
// in the state of one transaction earlier, with a warning.
//
// # The log of a fleet
//
// With [Config].Shipped the operations of each transaction are a [Frame], which [DB.Apply] applies
// to the file of a standby. The values of a frame are those of the file, so the two files have the
// same content. Frames are numbered without a gap, and name the term of the leader that wrote them
// and the term of the frame before. So a frame follows only on the file that it was made for, also
// if two leaders used the same number. In addition the seal of the content is compared after each
// frame.
//
// The position, term and number of the last frame, is in the file. A router without a fleet does
// not update it: then the seal in it differs from that of the file, and the file is in no log. The
// first leader of such a file skips a number, so that a standby needs a snapshot. Formats 1 to 8
// are read as before, and versions that know no fleet read a file with a position.
//
// # Other formats
//
// A version that adds something raises [Format]. It keeps the number of the oldest reader if older
// versions work without the addition: they can then read the state after a rollback. An older
// version writes its own number again, which shows the newer one that its additions may be out of
// date.
//
// A version that changes something also adds to the table conversions in db.go, and sets the number
// of the oldest reader to its own. Open copies a file of an older format to
// state.db.format-<number> and converts the file in one transaction. The copy is complete, synced
// and verified before; a later conversion from the same format replaces it, and the router never
// removes it. If the disk has no room for it, Open fails and the file stays as it is.
//
// testdata of this package and of internal/engine has files of the formats since the first
// one. A new format gets its file there, see the flag -update of the tests.
package checkpoint
