package pipeline

import (
	"context"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/filters"
	"github.com/deltarouter/deltarouter/pkg/rules"
)

// When makes a Route one with a condition: it takes no deltas as they are, but tells that its condition begins to hold for an object
// (event.Entered), and that it ends (event.Left), as far as its Ops want. Whether it holds is found out with each delta of the object; the
// end of an object ends it.
//
// What it knows of each object changes in one step with what the route owes, and is part of what [Pipeline.Dirty] hands over. With a
// [Store] nothing is told before a cut has it: else a crash could forget that it was told, and so that its end has to be told. Until
// Route.Ready is closed it looks at nothing: then all objects have to be looked at, see [Pipeline.Look].
type When struct {
	Filter filters.Filter // says whether it holds, as far as the delta's New goes; nil: there is no condition
	// Version differs between conditions that may hold for other objects: where it changes, all objects have to be looked at.
	Version    string
	For, Every time.Duration // see rules.ConditionConfig
	// CaughtUp is closed when what has happened until the router started was admitted. Until then time makes nothing of what was known
	// before: it may hold no longer. nil: it was.
	CaughtUp <-chan struct{}
	// Object returns what is cached under a name; nil: nothing is. It is asked about what was restored.
	Object func(source string, key event.Key) *event.Object
	// Resource returns what a source watches.
	Resource func(source string) *event.Resource
}

// kindCondition and kindLook mark what a condition knows of an object, and which condition all objects were looked at with, among the
// records of a route's rules.
const (
	kindCondition = 'c'
	kindLook      = 'v'
)

// level is the conditions of a route, and of those that take over from it. All but owner is guarded by the lock of the owner.
type level struct {
	*rules.Conditions

	owner    atomic.Pointer[route]
	caughtUp bool               // never before Start
	held     []*rules.Condition // due before it had caught up
	looked   bool               // all objects were looked at
	first    bool               // nobody has looked before, so that what holds is not new
	noted    bool               // looked was handed over as it is
	gate     chan struct{}      // closed when what is told now is on disk; nil: nothing was since the last cut
	saving   []chan struct{}    // those of what was handed over
	waiting  int                // in the metrics
	active   int
}

func (r *route) isLevel() bool { return r.cfg.When.Filter != nil }

func (r *route) conditionConfig() rules.ConditionConfig {
	return rules.ConditionConfig{Sources: r.cfg.Sources, For: r.cfg.When.For, Every: r.cfg.When.Every, Skip: !r.cfg.Existing}
}

// newLevel gives a route with a condition what it knows: nothing.
func (r *route) newLevel() {
	lv := &level{looked: r.cfg.Ready == nil && !r.cfg.Known, first: true}
	lv.Conditions = rules.NewConditions(r.conditionConfig(), r.parent.wheel, r.parent.census, func(_ *rules.Conditions, c *rules.Condition) { lv.due(c) })
	lv.owner.Store(r)
	r.level = lv
}

// levelEntry is what the table needs for a condition. The end of an object needs no look: who knows the object hears of it, see Admit.
func (r *route) levelEntry() filters.Entry {
	return filters.Entry{
		Sources: r.cfg.Sources, Ops: []event.Op{event.Added, event.Updated, event.Sync}, Initial: true, Born: math.MaxInt,
		Filter: r.cfg.When.Filter, Ready: r.cfg.Ready,
	}
}

// level makes a verdict of what the table found out about a condition. known: what it knows of the object may be changed by it. ok is
// false if it comes to nothing.
func (r *route) levelVerdict(ctx context.Context, d *event.Delta, m filters.Match) (v verdict, ok bool) {
	switch m.Verdict {
	case filters.Unready: // all objects are looked at when it is ready
		return v, false
	case filters.Filtered:
		r.count.filtered.Inc()
		if !r.knows(d) {
			return v, false
		}
		return r.leaves(ctx, d), true
	case filters.Failed:
		v = r.verdict(ctx, d, m)
	case filters.Matched:
		if v = r.verdict(ctx, d, m); v.err == nil {
			v.holds = true
		}
	}
	v.level = true
	return v, true
}

// knows reports whether the route's condition is known to hold for the object of d.
func (r *route) knows(d *event.Delta) bool {
	if !r.parent.census.May(d.Source, d.Key()) {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.level != nil && r.level.Knows(d.Source, d.Key())
}

// others appends verdicts about the conditions that the table did not mention, and that know the object: they hold no longer.
func (now *routing) others(ctx context.Context, d *event.Delta, dst []verdict) []verdict {
	n := len(dst)
	for _, r := range now.levels {
		if slices.ContainsFunc(dst[:n], func(v verdict) bool { return v.route == r }) || !slices.Contains(r.cfg.Sources, d.Source) {
			continue
		}
		if r.ready() && r.knows(d) {
			dst = append(dst, r.leaves(ctx, d))
		}
	}
	return dst
}

// leaves is the verdict that a condition holds no longer.
func (r *route) leaves(ctx context.Context, d *event.Delta) verdict {
	v := r.verdict(ctx, d, filters.Match{Verdict: filters.Matched})
	if v.err != nil { // it has to be told, whatever its key is
		r.count.errors(errorKind(v.err)).Inc()
		v.err = nil
	}
	v.level = true
	return v
}

// observe tells the condition what was found out about d, and owes what that makes. It is called under a source's cut lock.
func (r *route) observe(d *event.Delta, v *verdict) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.level == nil {
		return // there is another condition by now, or none
	}
	if v.err != nil {
		r.level.Doubt(d)
		r.append(d, v)
		r.changed()
		return
	}
	var few [2]*event.Delta
	now := r.now()
	edges := r.level.Observe(d, v.holds, d.Initial || v.look && r.level.first && !r.level.looked, now, few[:0])
	if v.remind && len(edges) == 0 {
		if edge := r.level.Remind(d, now); edge != nil {
			edges = append(edges, edge)
		}
	}
	r.tellEdges(edges, v)
}

// tellEdges owes edges. It is called under the lock.
func (r *route) tellEdges(edges []*event.Delta, v *verdict) {
	for _, edge := range edges {
		if !slices.Contains(r.cfg.Ops, edge.Op) {
			continue
		}
		if r.q.changes.on && edge.Repeat == 0 {
			edge.Durable = r.level.durable()
			r.parent.cfg.Store.Soon()
		}
		r.append(edge, v)
	}
	r.showLevel()
	r.changed()
}

// durable returns a channel that is closed when what is known now is on disk.
func (lv *level) durable() <-chan struct{} {
	if lv.gate == nil {
		lv.gate = make(chan struct{})
	}
	return lv.gate
}

// saved says that all that was handed over is on disk.
func (lv *level) saved() {
	for _, gate := range lv.saving {
		close(gate)
	}
	lv.saving = nil
}

// showLevel keeps the metrics. It is called under the lock.
func (r *route) showLevel() {
	waiting, active := r.level.Counts()
	if waiting != r.level.waiting {
		r.count.waiting.Set(float64(waiting))
	}
	if active != r.level.active {
		r.count.active.Set(float64(active))
	}
	r.level.waiting, r.level.active = waiting, active
}

// due is called by the wheel.
func (lv *level) due(c *rules.Condition) {
	for r := lv.owner.Load(); r != nil && !r.fire(lv, c); r = lv.owner.Load() {
		continue // it has another owner by now, or another object
	}
}

// fire owes what a condition tells whose time has come. It returns false if it has to be looked at again. The keys are asked without the lock.
//
//nolint:contextcheck,nolintlint // nobody calls what time does; the one linter heeds this where the other does not see it
func (r *route) fire(lv *level, c *rules.Condition) bool {
	r.mu.Lock()
	if r.level != lv {
		r.mu.Unlock()
		return lv.owner.Load() == r // it is nobody's
	}
	if !lv.caughtUp || !lv.looked {
		lv.held = append(lv.held, c)
		r.mu.Unlock()
		return true
	}
	if !lv.IsDue(c, r.now()) || !r.learn(c) {
		r.showLevel()
		r.mu.Unlock()
		return true
	}
	o, source := c.Object(), c.Source()
	r.mu.Unlock()

	v := r.verdict(timeContext{}, &event.Delta{Source: source, Op: event.Entered, New: o, Seen: r.now()}, filters.Match{Verdict: filters.Matched})

	r.mu.Lock()
	defer r.mu.Unlock()
	if r.level != lv || c.Object() != o {
		return false
	}
	if edge := lv.Fire(c, r.now()); edge != nil {
		r.tellEdges([]*event.Delta{edge}, &v)
	}
	return true
}

// learn makes sure that there is more of the object of a restored condition than who it is. It returns false if the object is not in the
// cache, which may be a moment ahead of what was observed. It is called under the lock.
func (r *route) learn(c *rules.Condition) bool {
	if c.Known() || r.cfg.When.Object == nil {
		return true
	}
	c.Learn(r.cfg.When.Object(c.Source(), c.Object().Key()))
	if !c.Known() {
		r.level.Missing(c, r.now())
	}
	return c.Known()
}

// catchUp waits until what has happened before the start was seen, and then owes what became due meanwhile.
func (r *route) catchUp(ctx context.Context) {
	for _, closed := range []<-chan struct{}{r.cfg.When.CaughtUp, r.cfg.Ready} {
		if closed == nil {
			continue
		}
		select {
		case <-closed:
		case <-ctx.Done():
			return
		}
	}
	r.catchUpAbsent()
	r.mu.Lock()
	lv := r.level
	if lv == nil || lv.caughtUp {
		r.mu.Unlock()
		return
	}
	for c := range lv.All() {
		if !c.Known() && r.cfg.When.Object != nil {
			c.Learn(r.cfg.When.Object(c.Source(), c.Object().Key()))
		}
	}
	lv.caughtUp = true
	held := lv.release()
	r.mu.Unlock()
	lv.dueAll(held)
}

// caughtUp notes that catchUp has ended.
func (r *route) caughtUp() {
	r.mu.Lock()
	r.catching = false
	r.mu.Unlock()
	r.parent.report()
}

// release returns what became due while time made nothing of it, once it may. It is called under the lock, and followed by dueAll without.
func (lv *level) release() (held []*rules.Condition) {
	if lv.caughtUp && lv.looked {
		held, lv.held = lv.held, nil
	}
	return held
}

func (lv *level) dueAll(held []*rules.Condition) {
	for _, c := range held {
		lv.due(c)
	}
}

// inheritLevel makes r go on with what the condition of the route that it takes over from knows. Both locks are held.
func (r *route) inheritLevel(from *route) {
	lv := from.level
	if lv == nil {
		if r.level != nil { // it had none, so all objects are looked at, as ones that were there before
			r.level.looked = false
		}
		return
	}
	if from.cfg.Name != r.cfg.Name {
		from.farewell = append(from.farewell, lv.farewell()...)
	}
	from.level, r.level = nil, lv
	lv.owner.Store(r)
	if from.cfg.Name != r.cfg.Name {
		lv.Renew()
		lv.noted = false
	}
	if !r.isLevel() { // Dirty says that nothing of it is known any more
		lv.Configure(rules.ConditionConfig{}, r.now())
		lv.looked, lv.first, lv.noted = false, true, false
		return
	}
	lv.Configure(r.conditionConfig(), r.now())
	if r.cfg.When.Version != from.cfg.When.Version {
		lv.first = lv.first && !lv.looked
		lv.looked, lv.noted = false, false
	}
	r.showLevel()
}
