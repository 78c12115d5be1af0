package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/deltarouter/deltarouter/pkg/checkpoint"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/expr"
	"github.com/deltarouter/deltarouter/pkg/rules"
)

// Limit says how much of a key the route may owe: Burst at once, and one more after each Every. What is more is suppressed: counted, and
// told by event.Delta.Suppressed to the next that is let through. What it knows is part of what [Pipeline.Dirty] hands over, of the same
// moment as what is owed.
//
// It is asked about a delta that the filter wants, before that is owed. Of a route that waits for more (Debounce, Grouped) it is asked
// when what waits is taken for the first time: about the net change of an object, or about a group as a whole, which counts as all its
// deltas. What the handler makes no event of, or what folds to nothing, does not count: another may come in its place, and how many were
// suppressed is told by that. That is forgotten of what is owed when the router ends or the route changes: it counts then. Dead letters that are delivered again are not subject to it, nor is what the filter or a key failed on.
type Limit struct {
	// Key names what is counted; nil: the object. An error that wraps expr.ErrAbsent means that the object has no key of that kind, and is
	// counted by itself; any other error rejects the delta.
	Key   func(ctx context.Context, d *event.Delta) (string, error)
	Every time.Duration // 0: no limit
	Burst int           // 0: 1
	// MaxKeys is how many keys are known at a time, see [rules.LimitConfig]; 0: 100,000.
	MaxKeys int
}

// kindLimit marks what a limit knows among the records of a route's rules.
const kindLimit = 'l'

func (l *Limit) on() bool { return l.Every > 0 }

func (l *Limit) config() rules.LimitConfig {
	return rules.LimitConfig{Every: l.Every, Burst: l.Burst, MaxKeys: l.MaxKeys}
}

// now is the time that all waits of the route go by.
func (r *route) now() time.Time { return r.clock.Now() }

// limitKey asks for the key that the limit counts d under. Keys that the configuration makes begin with another letter than objects.
func (r *route) limitKey(ctx context.Context, d *event.Delta) (string, error) {
	if !r.cfg.Limit.on() {
		return "", nil
	}
	if r.cfg.Limit.Key != nil {
		switch key, err := ask(ctx, r.cfg.Limit.Key, d); {
		case err == nil:
			return "k" + key, nil
		case !errors.Is(err, expr.ErrAbsent):
			return "", fmt.Errorf("limit: %w", err)
		}
		r.count.errors("absent").Inc()
	}
	name := objectID(d)
	return "o" + name.source + "\x00" + name.namespace + "\x00" + name.name, nil
}

// limitsLater reports whether the limit is asked when d is taken rather than when it is to be owed. That a condition began to hold counts
// as told, and its end has to be told then, as soon as it is owed.
func (r *route) limitsLater(d *event.Delta) bool {
	return r.cfg.Limit.on() && r.q.shape.rests() && d.Op != event.Entered && d.Op != event.Left
}

// wouldOwe is asked, under the lock, whether d may be owed, or else is suppressed. It returns d, or what is to be owed in its place. This
// is the one place where that is decided before something is owed. Left is owed if what it ends was, so it always may.
func (r *route) wouldOwe(d *event.Delta, limitKey string) (owed *event.Delta, pass *rules.Pass, ok bool) {
	if !r.cfg.Limit.on() || r.limitsLater(d) || d.Op == event.Left {
		return d, nil, true
	}
	return r.allow(d, limitKey, 1)
}

// allow asks the limit about n deltas that d is the last of. It is called under the lock.
func (r *route) allow(d *event.Delta, limitKey string, n int) (owed *event.Delta, pass *rules.Pass, ok bool) {
	pass = r.limit.Allow(limitKey, n, r.now())
	if pass == nil {
		r.count.suppressed.Add(float64(n))
		return nil, nil, false
	}
	if forgotten := r.limit.TakeForgotten(); forgotten > 0 {
		r.count.errors("limit_keys").Add(float64(forgotten))
	}
	if pass.Suppressed == 0 {
		return d, pass, true
	}
	owes := *d
	owes.Suppressed += pass.Suppressed
	return &owes, pass, true
}

// pass is asked, under the lock, about what is taken for the first time.
func (r *route) pass(last *entry, n int) bool {
	d, pass, ok := r.allow(last.delta, last.limitKey, n)
	if n == 1 || r.cfg.Joint { // else something may come of the others
		last.pass = pass
	}
	if ok && d != last.delta {
		r.q.setDelta(last, d)
	}
	return ok
}

// unspent is a pass of which nothing came.
type unspent struct {
	pass       *rules.Pass
	suppressed int // what the delta would have told
}

// unspend notes that nothing comes of e.
func (q *queue) unspend(e *entry) {
	if e.pass != nil {
		q.unspent = append(q.unspent, unspent{e.pass, e.delta.Suppressed})
	}
}

// giveBack gives back to the limit what is unspent, the last one first: see [rules.Limit.Return]. It is called under the lock, in the step
// that makes it so.
func (r *route) giveBack() {
	for _, u := range slices.Backward(r.q.unspent) {
		if r.limit != nil && r.cfg.Limit.on() {
			r.limit.Return(u.pass, u.suppressed, r.now())
		}
	}
	clear(r.q.unspent)
	r.q.unspent = r.q.unspent[:0]
}

// suppress counts a delta that is not owed.
func (r *route) suppress(e *entry) {
	if !e.counted {
		r.count.matched.Inc()
	}
	r.q.remove(e)
}

// inheritLimit makes r go on with what the limit of the route that it takes over from knows. Both locks are held.
func (r *route) inheritLimit(from *route) {
	limit, now := from.limit, r.now()
	from.limit, from.limitLess = nil, from.cfg.Limit.on()
	if limit == nil {
		return
	}
	r.limit = limit
	if !r.cfg.Limit.on() {
		limit.Abandon()
		return
	}
	limit.Configure(r.cfg.Limit.config(), now)
	_ = r.restoreLimit(r.records, now) // what cannot be understood was reported when they came
}

// RestoreRules gives a route back what its rules knew before a restart, as the sum of what [Pipeline.Dirty] handed over says, also under a
// name that it had. Call it before Start and before the first Admit. What cannot be understood is forgotten: the error says so, and the
// rest is restored.
func (p *Pipeline) RestoreRules(name string, records []checkpoint.RuleRecord) error {
	r := p.route(name)
	if r == nil || len(records) == 0 {
		return nil
	}
	return r.restoreRules(records)
}

// RestoreRules is [Pipeline.RestoreRules] for a route of the change. It is called before Swap. What a route knows that it takes over
// from counts more.
func (c *Change) RestoreRules(name string, records []checkpoint.RuleRecord) error {
	i := slices.IndexFunc(c.pairs, func(p pair) bool { return p.route.cfg.Name == name })
	if i < 0 || len(records) == 0 {
		return nil
	}
	return c.pairs[i].route.restoreRules(records)
}

func (r *route) restoreRules(records []checkpoint.RuleRecord) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.records = records
	if err := errors.Join(r.restoreLimit(records, r.now()), r.restoreLevel(records)); err != nil {
		return fmt.Errorf("route %q: what its rules knew cannot be restored: %w", r.cfg.Name, err)
	}
	return nil
}

func (r *route) restoreLimit(records []checkpoint.RuleRecord, now time.Time) (failed error) {
	for _, record := range records {
		if record.Kind != kindLimit {
			continue
		}
		if r.limit == nil {
			r.limit = rules.NewLimit(r.cfg.Limit.config(), now)
		}
		if err := r.limit.Restore(rules.Record{Key: string(record.Key), Value: record.Value}, now); err != nil {
			failed = err
		}
	}
	if r.limit != nil && !r.cfg.Limit.on() {
		r.limit.Abandon() // the limit was removed
	}
	return failed
}

// dirtyRules hands over what changed in what the rules know.
func (r *route) dirtyRules() (records []checkpoint.RuleRecord) {
	records = r.dirtyLevel()
	if r.limit == nil {
		return records
	}
	for _, record := range r.limit.Dirty(r.now()) {
		records = append(records, checkpoint.RuleRecord{Kind: kindLimit, Key: []byte(record.Key), Value: record.Value})
	}
	return records
}
