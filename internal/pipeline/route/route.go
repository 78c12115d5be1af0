// Package route runs a route: a backlog of pending deltas, and workers that take them in batches
// and deliver them. The pipeline commits deltas to it; timers, reloads, operators and upstream
// routes act on it, too.
//
// The lock of a Route guards its backlog (with the rules about time), its workers and its pause.
// targets.go has its relation to sinks and other routes, chain.go the hand-over of events to
// them, redeliver.go the dead letters that are delivered again, and tailreader.go the deltas that
// come back from the disk.
package route

import (
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/pipeline/condition"
	"github.com/deltarouter/deltarouter/internal/pipeline/queue"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/internal/trace"
	"github.com/deltarouter/deltarouter/internal/transit"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// forever is longer than any wait.
const forever = 24 * time.Hour

// Route is a running route. It is safe for concurrent use.
type Route struct {
	env        *Env
	generation atomic.Pointer[Generation] // changes only under mu
	misses     Misses
	deferral   deferral
	tailRoom   chan struct{} // has an element if the head may have room for a part of the tail

	mu       sync.Mutex // guards the following fields
	backlog  *backlog
	counts   counts
	workers  Workers
	catching *Generation // whose timers wait for the changes before the start; nil: none
	paused   pause
	// by downstream route without room: the time of the next attempt
	heldBack     map[string]time.Time
	redelivering map[uint64]bool // the dead letters that are pending again
	ended        bool            // it was removed, and its workers are abandoned
	installed    chan struct{}   // closed when the previous generation is no longer in use
}

// New returns a route that has not started.
func New(env *Env, g *Generation) *Route {
	r := &Route{
		env: env, heldBack: make(map[string]time.Time), redelivering: make(map[uint64]bool), tailRoom: make(chan struct{}, 1),
	}
	r.counts.since = env.Clock.Now()
	g.Tally(&r.counts.Tally)
	r.generation.Store(g)
	r.workers.route, r.workers.leader = r, queue.NewLeader(env.Clock)
	r.misses = Misses{r, make(chan struct{}, 1)}
	rules := condition.Env{Wheel: env.Wheel, Census: env.Census, Owner: timers{r}, Durable: env.Durable()}
	r.backlog = newBacklog(&env.Storage, g.Settings, rules, r.workers.leader)
	return r
}

// Generation returns the present generation of the route.
func (r *Route) Generation() *Generation { return r.generation.Load() }

// Settings returns the present settings of the route.
func (r *Route) Settings() *spec.Settings { return r.Generation().Settings }

// Workers returns the workers of the route.
func (r *Route) Workers() *Workers { return &r.workers }

// now returns the time of the clock that all delays of the route use.
func (r *Route) now() time.Time { return r.env.Clock.Now() }

// awaits returns the channel that is closed when the deltas without a lane may be processed, or
// another one that precedes it; nil: they may be. The lock is held.
func (r *Route) awaits() <-chan struct{} {
	switch c := r.Generation(); {
	case !c.IsReady():
		return c.Ready
	case r.backlog.bare && !c.IsWhole():
		return c.Cached.Whole
	}
	return nil
}

// changed is called under the lock after each change of the queue.
func (r *Route) changed() {
	r.backlog.changed()
	r.signalTailReader()
	if r.backlog.queue.Len() == 0 {
		r.env.Progress.reportIfAwaited()
	}
}

// pend enqueues d, or holds it if it is a delete. It is called under the cut lock of a source.
func (r *Route) pend(d *event.Delta, v *verdict) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !v.Unseen && v.Err == nil && r.backlog.holdDelete(d, v) {
		return
	}
	if state := transit.Of(d); state.Durable != nil && !r.Settings().DeliversEnds() {
		own := *d // another route waits for the disk, this one need not
		transit.Of(&own).Durable = nil
		d = &own
	}
	r.backlog.append(d, v)
	r.changed()
}

// Status is the state of a route, for readiness and operators.
type Status struct {
	Name    string
	ID      string
	Pending int
	// how many of these a drain leaves to the next start, because their windows are open
	Kept    int
	Bytes   int64     // of memory that the pending deltas take, see queue.Head
	OnDisk  int       // how many of these are only on disk
	Oldest  time.Time // when the oldest pending delta was seen; zero: there is none
	Waiting bool      // for the sources of its look-ups, or of restored deltas
	Paused  string    // the reason; empty: it is not paused
	Shadow  bool      // its events go nowhere
	HeldBy  string    // a downstream route without room; empty: there is none
	// Deferred: filters were deferred in the last minute, see filters.Deferred, or the condition is
	// still to be evaluated for missed objects
	Deferred bool
	Lacks    []string // for what its rules had no room in the last minute, and what to do about it
	Counts   spec.Counts
}

// Status returns the state of the route.
func (r *Route) Status() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	q, c, kept := &r.backlog.queue, r.Generation(), 0
	if r.backlog.allDebouncing() {
		kept = q.Len()
	}
	return Status{
		Name: c.Name, ID: c.ID, Pending: q.Len(), Kept: kept, Bytes: q.Head.Bytes() + q.Tail.Bytes(), OnDisk: q.Tail.Len(), Oldest: q.Oldest(),
		Deferred: r.deferral.lasts(r.now()) || r.backlog.rules.Conditions.AnyMissed(),
		Waiting:  !r.backlog.allPlaced && r.awaits() != nil, Paused: r.paused.reason, Shadow: c.Shadow, HeldBy: r.heldBy(), Lacks: r.backlog.lacks.Reasons(r.now()),
		Counts: r.counts.now(q.Len()),
	}
}

// Show updates the gauges that no event of the route changes.
func (r *Route) Show() {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.Generation()
	c.Count().Paused.Set(0)
	if r.paused.on() {
		c.Count().Paused.Set(1)
	}
	r.backlog.rules.Limit.MakeRoom(r.now())
	r.backlog.countRules()
	for _, reason := range r.backlog.lacks.News() {
		r.env.Complaints.Say(slog.LevelWarn, "a route has no room for its rules", errors.New(reason), slog.String("route", c.Name))
	}
	for i, t := range c.targets {
		if t.Sink != nil {
			c.Count().Events[i].Unavailable.Set(t.Sink.Opened())
		}
	}
}

// Restore enqueues the pending deltas of the checkpoint, see pipeline.Restore.
func (r *Route) Restore(pending []checkpoint.Pending, backlog checkpoint.Backlog) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.backlog.restore(pending, backlog); err != nil {
		return err
	}
	r.changed()
	return nil
}

// Dirty returns the changes since the last call, for the checkpoint.
func (r *Route) Dirty() checkpoint.RouteCut {
	r.mu.Lock()
	defer r.mu.Unlock()
	cut := checkpoint.RouteCut{Name: r.Generation().ID, Rules: r.counts.dirty(r.backlog.rules.Dirty(r.paused.dirty(), r.now()))}
	cut.Put, cut.Removed = r.backlog.dirty()
	return cut
}

// Saved is called when everything that Dirty has returned is on disk, where the route takes onDisk
// bytes.
func (r *Route) Saved(onDisk, owned int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.backlog.saved(onDisk, owned)
	r.changed()
}

// may reports whether a message of a route was not logged in the last minute.
func (e *Env) may(c *Generation, message string) bool {
	return e.Complaints.May(c.ID+"\x00"+message, e.Clock.Now())
}

// warn logs a message about failures, at most once a minute, because there may be one for each
// delta, and one for each partition of the route.
func (e *Env) warn(c *Generation, message string, d *event.Delta, target string, err error) {
	if e.may(c, message) {
		log := c.Log()
		if e.Tracer.On() {
			log = log.With(slog.String("traceId", trace.Of(d).String()))
		}
		log.Warn("deltas not delivered",
			slog.String("result", message), slog.String("delta", d.String()), slog.String("sink", target), slog.Any("err", err))
	}
}
