// Package backlog has the pending deltas of a route: its queue, with its rules about time, its
// limit, its overflow policy and its part of the disk. It decides what becomes pending and what is
// coalesced, dropped or suppressed, and counts it.
//
// It has no goroutine and no lock: the lock of the route guards it.
package backlog

import (
	"sync/atomic"
	"time"

	"github.com/deltarouter/deltarouter/internal/pipeline/condition"
	"github.com/deltarouter/deltarouter/internal/pipeline/queue"
	"github.com/deltarouter/deltarouter/internal/pipeline/schedule"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/internal/rules"
	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// Env is what the backlogs of all routes share.
type Env struct {
	Clock timer.Clock
	// Soon asks for a cut, because deltas on their way to the disk take memory. It does not block.
	// nil: nothing outlives the process.
	Soon     func()
	InFlight int64 // bytes of deltas that a route may have on their way to the disk
	MaxDisk  int64 // bytes that all routes together may have on disk; 0: no limit
	OnDisk   atomic.Int64
	// Refused is called with a delta that a route wants and that its sinks do not get, see
	// pipeline.Config.
	Refused func(route string, d *event.Delta, suppressed bool)
}

// Durable reports whether the backlog outlives the process.
func (e *Env) Durable() bool { return e.Soon != nil }

// Refuse tells what became of a delta that a route wanted.
func (e *Env) Refuse(route string, d *event.Delta, suppressed bool) {
	if e.Refused != nil {
		e.Refused(route, d, suppressed)
	}
}

// Backlog is the pending deltas of a route, and what its rules about time know. Its methods keep
// the order of the deltas of a key. The caller calls Changed after it has changed Queue.
type Backlog struct {
	Queue queue.Queue
	Rules *condition.Rules
	Room  Room

	// the route is ready, and all that came before it was, or was restored, is in its lane
	Settled  bool
	Draining bool // nothing more comes: batches need not wait

	// Old is the configuration of the batches at work, while these keep the present one from being
	// used. nil: there are none.
	Old *spec.Config

	env     *Env
	config  *spec.Config
	leader  *schedule.Leader
	limiter limiter
	shown   int // length of the tail, in the metrics
}

// New makes the empty backlog of a new route. leader is signalled when it may take something else.
func New(env *Env, c *spec.Config, all condition.Env, leader *schedule.Leader) *Backlog {
	b := &Backlog{Settled: c.Ready == nil, env: env, config: c, leader: leader}
	b.Rules = condition.New(all, c.Rules(), b.now())
	b.limiter = limiter{env, c, &b.Queue, b.Rules}
	b.Queue.Changes.On = env.Durable()
	b.Room.queue, b.Room.env = &b.Queue, env
	b.Room.configure(c)
	b.Queue.Configure(c.Window(), c.WritesInOrder())
	return b
}

// Configure changes the configuration. Old is the one before from now on; [Backlog.Adopt] gives the
// pending deltas lanes by the new one.
func (b *Backlog) Configure(next *spec.Config) {
	if b.config.Name != next.Name {
		b.Queue.Uncount() // it gets other metrics
		b.shown = -1
	}
	b.Old, b.config, b.limiter.config = b.config, next, next
	b.Rules.Configure(next.Rules(), b.now())
	b.CountRules()
	window := next.Window()
	if b.Draining && !b.Queue.Changes.On {
		window.Quiet, window.Wait = 0, 0
	}
	b.Queue.Configure(window, next.WritesInOrder())
	b.Settled = false
	b.Room.configure(next)
	b.Room.reopen()
}

// now is the time that all waits of the route go by.
func (b *Backlog) now() time.Time { return b.env.Clock.Now() }

// Append makes d pending, unless the limit suppresses it.
func (b *Backlog) Append(d *event.Delta, v *spec.Verdict) {
	if v.Unseen && b.Settled && !b.Queue.Tailed() {
		b.Settled = false // it became ready between the two: a worker asks the filter
		b.leader.Signal()
	}
	var pass *rules.Pass
	if unseen := v.Unseen || v.Err != nil; !unseen && (b.Settled || b.Room.spills()) {
		limited, may, ok := b.limiter.admit(d, v.LimitKey)
		if b.config.Limit.On() {
			b.CountRules()
		}
		if !ok {
			b.config.Count.Matched.Inc()
			return
		}
		d, pass = limited, may
	}
	b.Enqueue(d, v, pass)
}

// Enqueue makes pending what the limit let pass.
func (b *Backlog) Enqueue(d *event.Delta, v *spec.Verdict, pass *rules.Pass) {
	unseen, edge := v.Unseen || v.Err != nil, queue.IsEdge(d.Op)
	switch {
	case b.Room.spills():
		b.spill(d, unseen)
	case !b.Settled: // filter and keys are asked later, and anew: the order of the deltas counts
		b.overflow(b.Queue.Add(queue.Item{Delta: d, From: queue.Live, Unseen: !edge || unseen, Limit: queue.Limit{Pass: pass}}))
	default:
		limit := queue.Limit{Later: !unseen && b.limiter.later(d), Pass: pass}
		b.place(b.Queue.Add(queue.Item{Delta: d, From: queue.Live, Unseen: true, Limit: limit}), v)
	}
}

// place gives a pending entry its lane.
func (b *Backlog) place(e *queue.Entry, v *spec.Verdict) {
	failed := v.Err
	if !e.Counted {
		b.config.Count.Matched.Inc()
		e.Counted = true
	}
	if failed != nil {
		b.config.Count.Errors(spec.ErrorKind(failed)).Inc()
		b.Queue.Start(e).Dead = plugins.Bound(failed)
	}
	if unseen := failed != nil; e.Unseen != unseen {
		e.Unseen = unseen
		b.Queue.Changes.Note(e)
	}
	if e.Limit.Later {
		e.Limit.Key = v.LimitKey
	}
	if b.Queue.Place(e, v.Lane, b.windowTime()) {
		b.leader.Signal() // the leader waits for a later one, or for none
	}
	if b.replaceReminder(e) {
		return
	}
	if e.Restored {
		b.Queue.Head.MarkAttempted(e) // whatever the capacity is now
		return
	}
	if b.coalesces() && b.coalesce(e) {
		e = nil // it may be gone
	}
	b.overflow(e)
}

// Changed updates what depends on the queue: metrics, room, and the limit, which gets back what is
// unspent.
func (b *Backlog) Changed() {
	b.limiter.giveBack(b.Old == nil)
	b.config.Count.Depth.Set(float64(b.Queue.Len()))
	if n := b.Queue.Tail.Len(); n != b.shown {
		b.config.Count.OnDisk.Set(float64(n))
		b.shown = n
	}
	b.leader.Changed(b.Queue.Lanes.Ready())
	b.Room.update()
}

// Pass reports whether the limit lets n deltas pass that are taken for the first time, of which
// last is the last one.
func (b *Backlog) Pass(last *queue.Entry, n int) bool {
	ok := b.limiter.pass(last, n)
	b.CountRules()
	return ok
}

// coalesces reports whether the pending deltas of an object are coalesced, whatever room there is.
func (b *Backlog) coalesces() bool {
	return b.config.Deliver == spec.Latest || b.Queue.Lanes.Window().Quiet > 0
}

// Asleep reports whether all that the route could work on rests, and stays pending when it stops:
// what is in memory, and with that what comes behind it.
func (b *Backlog) Asleep() bool {
	resting, head := b.Queue.Lanes.Resting(), b.Queue.Head.Len()
	return b.Draining && resting > 0 && resting == head && (!b.Queue.Tailed() || head >= b.config.Capacity)
}

// windowTime returns the time that a window goes by; zero: there is none, and the clock need not be
// read.
func (b *Backlog) windowTime() (now time.Time) {
	if w := b.Queue.Lanes.Window(); w.On() {
		return b.now()
	}
	return now
}

// CountRules sets the gauges of the rules, and counts what they have done since the last call.
func (b *Backlog) CountRules() {
	c, n := &b.config.Count, b.Rules.Count()
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
	}
}
