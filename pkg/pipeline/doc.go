// Package pipeline takes a delta from the moment a source saw it to its ack: it asks the routes' filters, owes the delta to each route
// that wants it, gives it to the route's handler, writes the events to the route's sinks, tries again what fails, and puts aside what
// cannot be delivered.
//
//	source ──Admit──► route table ──commit──► delta queue ──► handler ──► sinks ──► ack
//	                                          (one a route)   (a batch)   (with breaker)
//	                                                ▲                       │
//	                                                └──── one route feeds another
//
// # What a route can rely on
//
//   - Each delta that it was given is delivered, dropped or dead-lettered at each of its sinks, at least once, unless it was folded
//     away (deliver: latest, overflow: fold) or dropped (overflow: dropOldest): both are counted.
//   - The deltas of one object come to the handler and to each sink in the order in which they happened, and one at a time: the next
//     is not written before the last is done at every sink. With a key of the route's own the same holds for all objects that share a
//     key. There is no order across keys. The events that a handler makes of one delta are written in order, but one that a sink
//     refuses for the moment comes after those that it took.
//   - What is dead-lettered is kept by a [DeadLetterer] before it counts as done, all of a batch at once. [Pipeline.Redeliver] puts it
//     through again: behind what is owed for its key, never folded, and the letter goes when the route is done with it.
//   - A retry holds its key and no other, and takes no worker. A sink that is down, a handler that hangs or an outlandish object costs
//     its own route only: each route has workers, a queue and a timer of its own, and nothing that a source calls waits for them,
//     but for overflow: block, which is there to make the source wait.
//   - A delta is seen twice after an attempt whose outcome is unknown (a timeout, a handler that failed as a whole), after a verdict
//     of retry, and when it stood in a batch behind a delta of the same key that was given such a verdict.
//
// # Routes that feed routes
//
// A sink may be another route (NamedSink.Feeds, Route.Fed): for each event that route is owed the delta once more, with the event. All
// events of a delta are given in one step with the note that the sink is done with it, and a cut, an exchange of the routes and the end of
// a drain see none of that half done. So a crash neither loses nor repeats what one route gives to another. A route that is full holds its feeders
// back, which go on owing, but for overflow: dropOldest; their other sinks, and the other routes, go on. What is fed never folds.
//
// # Locks
//
// In the order in which they may be taken: lifecycle, Pipeline.feeds, Pipeline.mu, the lock of a route, that of a breaker or of the
// wheel. The cut locks of the sources come before all of them. Two routes are locked together only where one takes over from the other: that one
// first. Nobody waits for room, for a handler or for a sink with a lock held.
//
// # Memory
//
// A route holds at most queue.memory deltas, the head of its queue. What comes when it is full goes behind it, to the tail, which is on
// disk alone: at the next cut, and until then in memory, a few MiB at most (Config.InFlight). While there is a tail everything that comes
// goes to its end, and when the head is half empty the beginning of the tail is read back: so the order is kept. Each route reads for
// itself, and of what is on disk there is no more than a count and an id in memory. See [Store].
//
// Without a [Store], or when the disk has no more room for the route (Route.Disk), for all of them (Config.MaxDisk), or does not keep
// up, the route's overflow decides. With overflow: fold it may hold more, but then no more than the net change of an object
// waits: one delta, or two where an object was deleted and made again. So it is bounded by the number of objects, and deletes that
// come beyond the capacity keep their identity only. With block it exceeds the capacity by one delta for each watch at most.
//
// What is owed lives in [queue] alone, under the lock of its route.
//
// # Restarts
//
// With a [Store] each owed delta has a number, and [Pipeline.Dirty] hands over what changed since the last call; what these
// changes come to is what [Pipeline.Restore] starts from. A worker tells as soon as a sink is done with a delta, so that a crash repeats
// at a sink only deltas that it was not done with, all events taken, at the last cut. What the handler made of a delta is not kept: it
// is asked again. A paused route goes on owing, and tries again after the restart;
// what pauses it is onFailure, or a sink ([plugins.Pause]).
// No delta is handled before its Durable is closed: until then it holds its key, and no worker.
package pipeline
