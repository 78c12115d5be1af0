package route

import (
	"sync/atomic"
	"time"

	"github.com/deltarouter/deltarouter/internal/pipeline/condition"
	"github.com/deltarouter/deltarouter/internal/pipeline/queue"
	"github.com/deltarouter/deltarouter/internal/pipeline/rules"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/internal/trace"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// Storage contains the clock, and the bounds of memory and disk, of the backlogs of all routes.
type Storage struct {
	Clock timer.Clock
	// Soon requests a cut, because deltas on their way to the disk take memory. It does not block.
	// nil: the pipeline is not durable.
	Soon     func()
	InFlight int64 // bytes of deltas that one route may have on their way to the disk
	MaxDisk  int64 // bytes that all routes together may have on disk; 0: no limit
	OnDisk   atomic.Int64
	Shares   shares        // of the owners of routes
	Tracer   *trace.Tracer // nil: deltas are not traced
	// Refused is called with a delta that passed the filter of a route and does not reach its
	// sinks, see pipeline.Config.
	Refused func(route string, d *event.Delta, suppressed bool)
}

// Durable reports whether the backlog survives the end of the process.
func (e *Storage) Durable() bool { return e.Soon != nil }

// Refuse calls Refused, if it is set.
func (e *Storage) Refuse(route string, d *event.Delta, suppressed bool) {
	if e.Refused != nil {
		e.Refused(route, d, suppressed)
	}
}

// backlog contains the pending deltas of a route: its queue, its rules about time, its limit, its
// overflow policy and its share of the disk. It decides which deltas become pending, and which are
// coalesced, dropped or suppressed, and counts them. Its methods keep the order of the deltas of a
// key. The caller calls changed after it has changed the queue.
//
// A delta of a source comes by append (the limit), enqueue (the overflow), add (the queue) and
// place (its lane). A worker gives those their lane later that came before the route was ready, by
// nextUnplaced and assignLane. A restart and an exchange add the pending deltas again, by restore
// and adoptAll; deltas on disk return by nextPart and readBack.
//
// It has no goroutine and no lock: the lock of the route guards it.
type backlog struct {
	queue queue.Queue
	rules *condition.Rules
	room  room
	lacks lacks

	// the route is ready, and every earlier or restored delta has its lane
	allPlaced bool
	draining  bool // no more deltas come, so batches are not delayed
	bare      bool // there were restored deltas of Secrets, see spec.Cached

	// before is the settings before, while an exchange is in progress, see Route.Install; nil:
	// there is none. The bits of Closed of all entries are still in the order of their sinks.
	before *spec.Settings

	env      *Storage
	settings *spec.Settings
	leader   *queue.Leader
	limiter  limiter
	shown    int // the length of the tail in the metrics
}

// newBacklog returns the empty backlog of a new route. leader is signalled when more deltas can be
// taken.
func newBacklog(env *Storage, c *spec.Settings, all condition.Env, leader *queue.Leader) *backlog {
	b := &backlog{allPlaced: c.Ready == nil, env: env, settings: c, leader: leader}
	env.Shares.rules(c.ID, &all)
	if env.Tracer.Keeps() {
		all.Untold = b.untold
	}
	b.rules = condition.New(all, c, b.now())
	b.limiter = limiter{env, c, &b.queue, b.rules}
	b.queue.Changes.On = env.Durable()
	b.queue.Absorbed = b.absorbed
	b.room.queue, b.room.env = &b.queue, env
	b.room.configure(c)
	b.queue.Configure(c.Window(), c.WritesInOrder())
	return b
}

// exchanging reports whether the settings were changed and the batches taken under those before
// have not ended: no batch is taken, and no part of the tail is read.
func (b *backlog) exchanging() bool { return b.before != nil }

// configure changes the settings, and begins an exchange; [backlog.adoptAll] ends it. None may be
// in progress: the pipeline makes one change at a time.
func (b *backlog) configure(next *spec.Settings) {
	if b.settings.Name != next.Name {
		b.queue.Uncount() // the new name has metrics of its own
		b.shown = -1
	}
	b.before, b.settings, b.limiter.settings = b.settings, next, next
	b.rules.Configure(next, b.now())
	b.countRules()
	window := next.Window()
	if b.draining && !b.queue.Changes.On {
		window.Quiet, window.Wait = 0, 0
	}
	b.queue.Configure(window, next.WritesInOrder())
	b.allPlaced = false
	b.room.configure(next)
	b.room.reopen()
}

// now returns the time of the clock that all delays of the route use.
func (b *backlog) now() time.Time { return b.env.Clock.Now() }

// append enqueues d, unless the limit suppresses it.
func (b *backlog) append(d *event.Delta, v *spec.Verdict) {
	if v.Unseen && b.allPlaced && !b.queue.Tailed() {
		// the route became ready after the evaluation: a worker evaluates the filter
		b.allPlaced = false
		b.leader.Signal()
	}
	var pass *rules.Pass
	if unseen := v.Unseen || v.Err != nil; !unseen && (b.allPlaced || b.room.spills()) {
		limited, may, ok := b.limiter.admit(d, v.LimitKey)
		if b.settings.Limit.On() {
			b.countRules()
		}
		if !ok {
			b.settings.Count().Matched.Inc()
			return
		}
		d, pass = limited, may
	}
	b.enqueue(d, v, pass)
}

// enqueue makes a delta pending that the limit allowed.
func (b *backlog) enqueue(d *event.Delta, v *spec.Verdict, pass *rules.Pass) {
	// After a restart the filter decides again about a delta on which it failed.
	unseen, edge := v.Unseen || v.Err != nil, queue.IsEdge(d)
	switch {
	case b.room.spills():
		b.spill(d, unseen)
	// filter and keys are evaluated later, or again, because the order of the deltas counts
	case !b.allPlaced:
		b.overflow(b.add(queue.Item{Delta: d, From: queue.Live, Unseen: !edge || unseen, Limit: queue.Limit{Pass: pass}}), b.room.bound())
	default: // place clears Unseen at once, which tells the checkpoint that the filter has decided
		limit := queue.Limit{Later: !unseen && b.limiter.later(d), Pass: pass}
		b.overflow(b.place(b.add(queue.Item{Delta: d, From: queue.Live, Unseen: true, Limit: limit}), v), b.room.bound())
	}
}

// take makes a delta pending that another process has admitted: it is in the lane, and it is
// neither coalesced nor suppressed nor dropped. closed are the targets that are done with it.
func (b *backlog) take(d *event.Delta, lane queue.Key, number, closed uint64) *queue.Entry {
	item := queue.Item{Delta: d, From: queue.Live}
	if d.Redelivered {
		item.Since = b.now() // its age starts again
	}
	e := b.add(item)
	e.Work = number
	if closed > 0 {
		b.queue.Start(e).Closed = closed
	}
	b.settings.Count().Matched.Inc()
	e.Counted = true
	b.queue.Place(e, lane, b.windowTime())
	b.queue.Head.MarkAttempted(e)
	return e
}

// place assigns a lane to a pending entry, and returns it if the overflow policy may apply to it.
func (b *backlog) place(e *queue.Entry, v *spec.Verdict) *queue.Entry {
	failed := v.Err
	if !e.Counted {
		b.settings.Count().Matched.Inc()
		e.Counted = true
	}
	if failed != nil {
		b.settings.Count().Errors(spec.ErrorKind(failed)).Inc()
		b.queue.Start(e).Dead = plugins.Bound(failed)
	}
	if unseen := failed != nil; e.Unseen != unseen {
		e.Unseen = unseen
		b.queue.Changes.Note(e)
	}
	if e.Limit.Later {
		e.Limit.Key = v.LimitKey
	}
	if b.queue.Place(e, v.Lane, b.windowTime()) {
		b.leader.Signal() // the leader waits for a later deadline, or for none
	}
	b.holdInWindow(e)
	if b.replaceReminder(e) {
		return nil
	}
	if e.Restored {
		b.queue.Head.MarkAttempted(e) // regardless of the present capacity
		return nil
	}
	if b.coalesces() && b.coalesce(e) {
		return nil // it may have been removed
	}
	return e
}

// changed updates everything that depends on the queue: metrics, room, and the limit, which gets
// unspent passes back.
func (b *backlog) changed() {
	b.limiter.giveBack(!b.exchanging())
	b.settings.Count().Depth.Set(float64(b.queue.Len()))
	b.settings.Count().Bytes.Set(float64(b.queue.Head.Bytes() + b.queue.Tail.Bytes()))
	if n := b.queue.Tail.Len(); n != b.shown {
		b.settings.Count().OnDisk.Set(float64(n))
		b.shown = n
	}
	b.leader.Changed(b.queue.Lanes.Ready())
	b.room.update()
}

// applyLimit reports whether the limit allows n deltas that are taken for the first time; last is
// the last one.
func (b *backlog) applyLimit(last *queue.Entry, n int) bool {
	ok := b.limiter.pass(last, n)
	b.countRules()
	return ok
}

// coalesces reports whether the pending deltas of an object are coalesced even if there is room.
func (b *backlog) coalesces() bool {
	return b.settings.Deliver == spec.Latest || b.queue.Lanes.Window().Quiet > 0
}

// allDebouncing reports whether a draining route can deliver nothing more: all entries in memory
// are in debounce windows, and stay pending when the process stops.
func (b *backlog) allDebouncing() bool {
	resting, head := b.queue.Lanes.Debouncing(), b.queue.Head.Len()
	return b.draining && resting > 0 && resting == head && (!b.queue.Tailed() || b.room.headFull())
}

// windowTime returns the present time if the route has a window. Otherwise it returns zero, to save
// a read of the clock.
func (b *backlog) windowTime() (now time.Time) {
	if w := b.queue.Lanes.Window(); w.On() {
		return b.now()
	}
	return now
}

// countRules sets the gauges of the rules, and adds the counts of the rules since the last call.
func (b *backlog) countRules() {
	c, n := b.settings.Count(), b.rules.Count()
	if c.Waiting != nil {
		c.Waiting.Set(float64(n.Waiting))
	}
	if c.Active != nil {
		c.Active.Set(float64(n.Active))
	}
	if c.Keys != nil {
		c.Keys.Set(float64(n.Keys))
	}
	if n.Suppressed > 0 {
		c.Matched.Add(float64(n.Suppressed))
		c.Suppressed.Add(float64(n.Suppressed))
	}
	if n.Forgotten > 0 {
		c.Errors("limit_keys").Add(float64(n.Forgotten))
		b.lacks.keys.note(lackOfKeys(b.settings.ID, &b.rules.Limit), b.now())
	}
	if n.Refused > 0 {
		c.Errors("no_room").Add(float64(n.Refused))
		b.lacks.objects.note(lackOfObjects(b.settings.ID, &b.env.Shares), b.now())
	}
}
