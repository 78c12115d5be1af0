// Package pipeline takes a delta from the moment a source saw it to its ack: it evaluates the
// filters of the routes, makes the delta pending in each route that wants it, and delivers it
// through the handler of the route to its targets.
//
//	source ──Admit──► filters, keys ──Commit──► queue ──► handler ──► sinks ──► ack
//	                                              ▲                     │
//	                                              └── downstream route ─┘
//
// A delta on its way passes these packages:
//
//   - this one: admit.go asks each route for its verdict, and waits for room
//   - spec: the filter and the keys of a route; condition for rules about time
//   - route: Commit; from then on the delta is pending
//   - backlog: the limit, the overflow policy, and the queue (package queue)
//   - route: a worker takes a batch when the schedule (package schedule) says so
//   - deliver: handler, targets, retries, dead letters; chain.go for a downstream route (package
//     chain)
//
// restore.go has what the checkpoint gets and gives back, reconfigure.go the exchange of the
// routes.
//
// # What a route can rely on
//
//   - Each delta is delivered, dropped or dead-lettered at each target, at least once, unless it
//     was coalesced (deliver: latest, overflow: coalesce) or dropped (overflow: dropOldest): both
//     are counted.
//   - The deltas of one object come to the handler and to each target in the order in which they
//     happened: none is delivered at a target before the one ahead of it was taken or given up
//     there. A batch and a write may have several of them. Where a sink does not keep their order
//     by itself (NamedSink.InOrder), or a rejected delta pauses the route, they are written one at
//     a time, each when the one ahead of it is done at every target. With a key of the route the
//     same holds for all objects that share a key. There is no order across keys. The events of one
//     delta are written in order, but an event that a sink refuses for the moment comes after those
//     that it took.
//   - A [DeadLetterer] keeps a dead letter before its delta counts as done, all of a batch at once.
//     [Pipeline.Redeliver] delivers it again, behind the pending deltas of its key and never
//     coalesced; the letter is removed when the route is done with it.
//   - A retry holds its key and no other, and takes no worker. A sink that is down, a handler that
//     hangs or an outlandish object costs its own route only: each route has workers, a queue and a
//     timer of its own, and nothing that a source calls waits for them, but for overflow: block,
//     which makes the source wait.
//   - A delta is seen twice after an attempt whose outcome is unknown (a timeout, a handler that
//     failed as a whole), after a verdict of retry, and when it was in a batch behind a delta of
//     the same key with such a verdict.
//
// # Chains
//
// A target may be another route (NamedSink.Route, Route.Downstream). For each event the delta is
// enqueued there once more, with the event. All events of a delta are handed over in one step with
// the note that the target is done with it; a cut, an exchange of the routes and the end of a drain
// see none of that half done. So a crash neither loses nor repeats an event between two routes. A
// full route, but for overflow: dropOldest, holds its upstream routes back, which keep their
// backlog; their other targets go on. Events are never coalesced.
//
// # Locks
//
// In the order in which they may be taken: life.mu, Chains, Pipeline.mu, the lock of a route, that
// of a breaker or of the wheel. The cut locks of the sources come before all of them. No two routes
// are locked together. No lock is held during a wait for room, a handler or a sink. A delta takes
// the lock of its route three times when nothing goes wrong: to become pending, to be taken in a
// batch, and at its end.
//
// # Memory
//
// A route holds at most queue.memory deltas, the head of its queue. A delta that comes when the
// head is full goes behind it, to the tail, which is on disk alone: at the next cut, and until then
// in memory, a few MiB at most (Config.InFlight). While there is a tail every delta goes to its
// end, and when the head is half empty the beginning of the tail is read back: so the order is
// kept. Each route reads for itself, and of a delta on disk there is no more than a count in
// memory. See [Store].
//
// A source that is faster than the disk waits for it. Without a [Store], or when the disk has no
// more room for the route (Route.Disk) or for all of them (Config.MaxDisk), or takes nothing for
// some seconds, the overflow policy of the route decides. With coalesce the route may hold more,
// but no more than the net change of each object: one delta, or two where an object was deleted and
// made again. So it is bounded by the number of objects, and deletes beyond the capacity keep only
// the identity of the object. With block it exceeds the capacity by one delta for each watch at
// most.
//
// # Restarts
//
// With a [Store] each pending delta has a number. [Pipeline.Dirty] returns the changes since the
// last call, and [Pipeline.Restore] starts from their sum. A worker reports that a target is done
// with a delta before it goes on to anything that takes time, so that a crash repeats at a target
// only deltas that it was not done with, all events taken, at the last cut. The events of a handler
// are not kept: it is called again. A paused route keeps its backlog. If onFailure has paused it,
// it tries again after the restart; if a sink has ([plugins.Pause]), after [Pipeline.Resume]. No
// delta is handled before its object is on disk: until then it holds its key, and no worker.
package pipeline
