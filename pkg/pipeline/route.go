package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/deltarouter/deltarouter/pkg/checkpoint"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/expr"
	"github.com/deltarouter/deltarouter/pkg/filters"
	"github.com/deltarouter/deltarouter/pkg/rules"
	"github.com/deltarouter/deltarouter/pkg/timer"
)

// forever is longer than any wait.
const forever = 24 * time.Hour

// route is a Route at work. Its workers share the queue; one at a time of them, the one that holds lead, puts a batch together.
type route struct {
	cfg     Route
	born    int            // the pipeline's epoch when the route, or the first one that it took over from, appeared, see filters.Entry
	table   *filters.Table // of this route alone
	parent  *Pipeline
	heir    heir // until it works
	letters DeadLetterer
	sinks   []*breaker // as in cfg.Sinks; nil: it feeds a route
	bereft  bool       // what it owes is another's by now, or nobody's; guarded by the pipeline's feeds
	count   counters
	log     *slog.Logger

	stop, cancel context.CancelFunc // for workers: take no more, and give up
	workers      sync.WaitGroup

	lead  chan struct{} // holds a token while a worker puts a batch together
	wake  chan struct{} // something changed that the leader waits for, or it is time
	low   chan struct{} // there is a tail, and room in the head
	clock timer.Clock
	timer timer.Timer // the leader's

	mu        sync.Mutex
	q         queue
	limit     *rules.Limit            // nil: there is none, and was none
	records   []checkpoint.RuleRecord // that were restored
	limitLess bool                    // the limit is another route's by now: it takes nothing more
	level     *level                  // nil: there is no condition, and was none, or it is another route's by now
	absent    *absent                 // nil: it does not wait for what comes back, and did not, or another route does by now
	farewell  []checkpoint.RuleRecord // that what the condition knew is known under another name
	reset     bool                    // what was saved of the route is replaced by what it owes
	settled   bool                    // the route is ready, and all that came before it was, or was restored, is in its lane
	draining  bool                    // nothing more comes: batches need not wait
	paused    string                  // why
	want      int                     // the leader waits until so many deltas are ready; 0: for something else
	parked    bool                    // the leader waits, and nothing has changed since that it waits for
	due       time.Time               // when it looks again, to which the timer is set; zero: when something changes
	until     time.Time               // when the batch that is being put together waits no longer; zero: there is none
	busy      int                     // batches with workers
	catching  bool                    // time may have made something of a condition meanwhile, see catchUp
	room      chan struct{}           // closed when there is room again; nil: nobody waits
	stalled   bool                    // somebody who feeds it waited for room in vain
	heldBack  []time.Time             // by sink: until when the route that it feeds is left alone; zero: it had room
	calm      chan struct{}           // closed when the route is not laden any more; nil: nobody waits

	shown        int             // of tail.n, in the metrics
	frozen       bool            // what it owes is another's by now
	redelivering map[uint64]bool // dead letters that are owed again

	complained map[string]time.Time // when each kind of trouble was last said in the log
}

func newRoute(cfg Route, born int, parent *Pipeline, breakers map[string]*breaker) *route {
	all := parent.cfg
	r := &route{
		cfg: cfg, born: born, parent: parent, letters: all.DeadLetters,
		count: newCounters(all.Metrics, cfg),
		log:   all.Log.With(slog.String("route", cfg.Name)),
		lead:  make(chan struct{}, 1), wake: make(chan struct{}, 1), low: make(chan struct{}, 1), clock: all.Clock,
		settled: cfg.Ready == nil, complained: map[string]time.Time{}, redelivering: map[uint64]bool{},
	}
	r.timer = r.clock.NewTimer(r.awaken)
	if r.isLevel() {
		r.newLevel()
	}
	if cfg.Gone > 0 {
		r.newAbsent()
	}
	r.table = filters.NewTable([]filters.Entry{r.entry()})
	r.q.changes.on = all.Store != nil
	r.q.shape = cfg.shape()
	if cfg.Limit.on() {
		r.limit = rules.NewLimit(cfg.Limit.config(), r.now())
	}
	if all.Store == nil {
		r.cfg.Disk = 0
	}
	r.heldBack = make([]time.Time, len(cfg.Sinks))
	for _, s := range cfg.Sinks {
		if s.Feeds != "" {
			r.sinks = append(r.sinks, nil)
			continue
		}
		key := s.Name + "\x00" + s.Version
		b := breakers[key]
		if b == nil {
			b = newBreaker(s, all.Log, all.Clock)
			breakers[key] = b
		}
		b.configure(cfg.Retry)
		r.sinks = append(r.sinks, b)
	}
	return r
}

func (r *route) entry() filters.Entry {
	if r.isLevel() {
		return r.levelEntry()
	}
	sources := r.cfg.Sources
	if r.cfg.Fed {
		sources = nil
	}
	return filters.Entry{
		Sources: sources, Ops: r.cfg.Ops, Initial: r.cfg.Existing, Born: r.born, Filter: r.cfg.Filter, Ready: r.cfg.Ready,
	}
}

// verdict completes what the table found: the lane of a delta that the route wants.
func (r *route) verdict(ctx context.Context, d *event.Delta, m filters.Match) verdict {
	v := verdict{route: r, lane: objectID(d), unseen: m.Verdict == filters.Unready}
	if m.Err != nil {
		v.err = fmt.Errorf("filter: %w", m.Err)
	}
	if m.Verdict != filters.Matched {
		return v
	}
	if r.cfg.Key != nil {
		switch key, err := ask(ctx, r.cfg.Key, d); {
		case err == nil:
			v.lane = id{name: key}
		case errors.Is(err, expr.ErrAbsent):
			r.count.errors("absent").Inc()
		default:
			v.err = fmt.Errorf("key: %w", err)
			return v
		}
	}
	v.limitKey, v.err = r.limitKey(ctx, d)
	return v
}

// ask asks for a key. The content of an object must not end the process.
func ask(ctx context.Context, of func(context.Context, *event.Delta) (string, error), d *event.Delta) (key string, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panicked: %w", panicked(p))
		}
	}()
	return of(ctx, d)
}

// owe appends d to what the route owes. It is called under a source's cut lock.
func (r *route) owe(d *event.Delta, v *verdict) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !v.unseen && v.err == nil && r.holds(d) {
		r.hold(d, v.lane)
		return
	}
	r.append(d, v)
	r.changed()
}

// append is owe under the lock.
func (r *route) append(d *event.Delta, v *verdict) {
	if v.unseen && r.settled && !r.q.tailed() {
		r.settled = false // it became ready between the two: a worker asks the filter
		r.signal()
	}
	spills, unseen, edge := r.spills(), v.unseen || v.err != nil, isEdge(d.Op)
	var pass *rules.Pass
	if !unseen && (spills || r.settled || edge) {
		owed, may, ok := r.wouldOwe(d, v.limitKey)
		if !ok {
			r.count.matched.Inc()
			if edge && r.level != nil {
				r.level.Suppress(d)
			}
			return
		}
		d, pass = owed, may
	}
	switch {
	case spills:
		r.spill(d, unseen)
	case !r.settled: // filter and keys are asked later, and anew: the order of the deltas counts
		e := r.q.addPending(d)
		e.unseen, e.pass = !edge || unseen, pass
		r.overflow(e)
	default:
		e := r.q.addPending(d)
		e.unlimited, e.pass = !unseen && r.limitsLater(d), pass
		r.place(e, v)
	}
}

// ready reports whether filter and key may be asked.
func (r *route) ready() bool { return r.cfg.Ready == nil || isClosed(r.cfg.Ready) }

// place gives a pending entry its lane.
func (r *route) place(e *entry, v *verdict) {
	failed := v.err
	if !e.counted {
		r.count.matched.Inc()
		e.counted = true
	}
	if failed != nil {
		r.count.errors(errorKind(failed)).Inc()
		if e.work == nil {
			e.work = reuse(&r.q.freeWork)
		}
		e.work.dead = failed
	}
	if unseen := failed != nil; e.unseen != unseen {
		e.unseen = unseen
		r.q.changes.note(e)
	}
	if e.unlimited {
		e.limitKey = v.limitKey
	}
	r.lay(e, v.lane)
	if e.restored {
		r.q.setStage(e, attempted) // whatever the capacity is now
		return
	}
	if r.folds() && r.fold(e) {
		e = nil // it may be gone
	}
	r.overflow(e)
}

// errorKind is the kind of an error of filter or key in the metrics.
func errorKind(err error) string {
	if errors.Is(err, expr.ErrCost) {
		return "cost"
	}
	return "filter"
}

// changed is called, under the lock, after the queue changed.
func (r *route) changed() {
	r.giveBack()
	owed := r.q.owed()
	r.count.depth.Set(float64(owed))
	if n := r.q.tail.n; n != r.shown {
		r.count.onDisk.Set(float64(n))
		r.shown = n
	}
	if r.want > 0 && r.q.readyLen >= r.want {
		r.signal()
	}
	if (r.room != nil || r.stalled) && !r.full() {
		r.makeRoom()
	}
	if r.calm != nil && !r.laden() {
		close(r.calm)
		r.calm = nil
	}
	if r.q.tailed() && 2*r.q.headLen() <= r.cfg.Capacity {
		select {
		case r.low <- struct{}{}:
		default:
		}
	}
	if owed == 0 && r.parent.awaited.Load() {
		r.parent.report()
	}
}

// makeRoom tells who waits that there is room.
func (r *route) makeRoom() {
	r.stalled = false
	if r.room != nil {
		close(r.room)
		r.room = nil
	}
}

func (r *route) drain() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.draining = true
	if !r.q.changes.on {
		r.q.disturb() // what rests would be lost
	}
	r.q.wakeAll()
	r.signal()
}

// moving reports whether the route owes something that it can work on.
func (r *route) moving() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.q.owed() > 0 && r.paused == "" && !r.q.tail.held && (r.settled || r.ready()) && !r.asleep()
}

// pause stops the route for good.
func (r *route) pause(d *event.Delta, sink string, reason error) {
	r.mu.Lock()
	first := r.paused == ""
	if first {
		r.paused = d.String() + ": " + reason.Error()
	}
	r.mu.Unlock()
	r.parent.report()
	if first {
		r.log.Error("route is paused and delivers nothing more: mend the cause, then change the route and reload, or start the router anew",
			slog.String("delta", d.String()), slog.String("sink", sink), slog.Any("error", reason))
	}
}

func (r *route) status() RouteStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	kept := 0
	if r.asleep() {
		kept = r.q.owed()
	}
	return RouteStatus{
		Name: r.cfg.Name, Owed: r.q.owed(), Kept: kept, OnDisk: r.q.tail.n, Oldest: r.q.oldest(), Waiting: !r.settled && !r.ready(), Paused: r.paused,
		HeldBy: r.heldBy(),
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
