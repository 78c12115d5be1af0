// Package pipeline processes a delta from its source to its ack: it evaluates the filters of the
// routes, makes the delta pending in each route that wants it, and delivers it through the handler
// of the route to its targets.
//
//	source ──Admit──► filters, keys ──Commit──► queue ──► handler ──► sinks ──► ack
//	                                              ▲                     │
//	                                              └── downstream route ─┘
//
// A delta on its way passes these packages:
//
//   - this one: admit.go asks each route for its verdict, and waits for room
//   - spec: the filter and the keys of a route; condition for rules about time
//   - route: Commit; from then on the delta is pending. backlog.go: the limit, the overflow policy,
//     and the queue (package queue). A worker takes a batch when its leader (queue.Leader) plans one
//   - deliver: handler, targets, retries, dead letters; chain.go for a downstream route (package
//     chain)
//
// restore.go connects the pipeline with the checkpoint; reconfigure.go exchanges the routes.
//
// # Guarantees of a route
//
//   - Each delta is delivered, dropped or dead-lettered at each target, at least once, unless it
//     was coalesced (deliver: latest, overflow: coalesce) or dropped (overflow: dropOldest): both
//     are counted.
//   - The deltas of one object reach the handler and each target in the order in which they
//     happened: none is delivered at a target before the one ahead of it was delivered or rejected
//     for good there. A batch and a write may contain several of them. If a sink does not keep
//     their order by itself (NamedSink.InOrder), or a rejected delta pauses the route, they are
//     written one at a time, each when the one ahead of it is done at every target. With a key of
//     the route the same holds for all objects that share a key. There is no order across keys. The
//     events of one delta are written in order, but an event that a sink refuses for the moment
//     comes after those that it took.
//   - A dead letter is stored by the [DeadLetterer] before its delta counts as done, with all
//     others of the batch. [Pipeline.Redeliver] delivers it again, behind the pending deltas of its
//     key and never coalesced; the letter is removed when the route is done with it.
//   - A retry holds its key and no other, and takes no worker. An unavailable sink, a handler that
//     hangs or a huge object affects its own route only: each route has its own workers, queue and
//     timer, and sources do not wait for them, except with overflow: block.
//   - A delta is handled twice after an attempt whose outcome is unknown (a timeout, a handler that
//     failed as a whole), after a verdict of retry, and when it was in a batch behind a delta of
//     the same key with such a verdict.
//
// # Chains
//
// A target may be another route (NamedSink.Route, Route.Downstream). For each event the delta is
// enqueued there once more, with the event. All events of a delta are handed over under the same
// lock under which the target is marked as done; a cut, an exchange of the routes and the end of a
// drain see no hand-over half done. So a crash neither loses nor repeats an event between two
// routes. A full route, except with overflow: dropOldest, holds its upstream routes back, which
// keep their backlog; their other targets go on. Events are never coalesced.
//
// # Locks
//
// In the order in which they may be taken: life.mu, Chains, Pipeline.mu, the lock of a route, that
// of a breaker or of the wheel. The cut locks of the sources come before all of them. No two routes
// are locked together. No lock is held during a wait for room, a handler or a sink. Without
// failures a delta takes the lock of its route three times: to become pending, to be taken in a
// batch, and at its end.
//
// # Memory
//
// A route holds at most queue.memory deltas of queue.bytes, the head of its queue; only the last
// one may exceed the bytes. They are counted when the delta is added, and again when its events
// have been made, see queue.Head. When the head is full, new deltas go to the tail, which is only
// on disk after the next cut, and until then in memory, a few MiB at most (Config.InFlight). While
// there is a tail, every delta is appended to it, and when the head is half empty the first part of
// the tail is read back, so the order is kept. Each route reads its own tail, and deltas on disk
// are only counted in memory. See [Store].
//
// A source that is faster than the disk waits for it. The overflow policy of the route applies
// without a [Store], when the disk bound of the route (Route.Disk) or of all routes
// (Config.MaxDisk) is reached, or when the disk writes nothing for some seconds. With coalesce the
// route may exceed its memory, but holds only the net change of each object: one delta, or two if
// an object was deleted and created again. So it is bounded by the number of objects, and deletes
// beyond the capacity keep only the identity of the object. With block it exceeds the capacity by
// at most one delta for each watch.
//
// # Restarts
//
// With a [Store] each pending delta has a number. [Pipeline.Dirty] returns the changes since the
// last call, and [Pipeline.Restore] restores their sum. A worker reports that a target is done with
// a delta before each slow operation, so that a crash repeats at a target only deltas that were not
// done there at the last cut. The events of a handler are not stored: it is called again. A paused
// route keeps its backlog. A pause by onFailure ends with the restart; a pause by a sink
// ([plugins.Pause]) ends with [Pipeline.Resume]. No delta is handled before its object is on disk:
// until then it blocks its key, but no worker.
package pipeline
