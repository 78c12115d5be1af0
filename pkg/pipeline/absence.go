package pipeline

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/deltarouter/deltarouter/pkg/checkpoint"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/filters"
	"github.com/deltarouter/deltarouter/pkg/rules"
)

// kindAbsence marks an object that is gone, and may come back, among the records of a route's rules.
const kindAbsence = 'a'

// absent is what a route with Gone holds, and those that take over from it. All but owner is guarded by the lock of the owner.
type absent struct {
	*rules.Absences

	owner    atomic.Pointer[route]
	held     []*rules.Absence // due before the route had caught up
	caughtUp bool
}

func (r *route) newAbsent() {
	ab := &absent{}
	ab.Absences = rules.NewAbsences(r.cfg.Gone, r.parent.wheel, ab.due)
	ab.owner.Store(r)
	r.absent = ab
}

// holds reports whether d waits until it is sure that its object does not come back.
func (r *route) holds(d *event.Delta) bool { return r.cfg.Gone > 0 && r.absent != nil && ends(d.Op) }

// hold holds d. It is called under the lock. What is beyond the capacity keeps its identity only.
func (r *route) hold(d *event.Delta, lane id) {
	if r.absent.Len() >= r.cfg.Capacity {
		d = shrink(d)
	}
	r.absent.Hold(d, r.absenceKey(d, lane), r.now())
}

// absenceKey returns the key of the route's own under which the object of d may come back; empty: there is none. That it is in a group with
// another one says nothing.
func (r *route) absenceKey(d *event.Delta, lane id) string {
	if r.cfg.Grouped || lane == objectID(d) {
		return ""
	}
	return lane.name
}

// returns adds the verdicts of the routes for which the object of d may have been gone.
func (now *routing) returns(ctx context.Context, d *event.Delta, a *admission) *admission {
	for _, r := range now.lasting {
		if !slices.Contains(r.cfg.Sources, d.Source) || r.holding() == 0 {
			continue
		}
		v := r.verdict(ctx, d, filters.Match{Verdict: filters.Matched})
		v.returns, v.err = true, nil
		if a == nil {
			a = &admission{delta: d}
			a.verdicts = a.few[:0]
		}
		a.verdicts = append(a.verdicts, v)
	}
	return a
}

func (r *route) holding() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.absent == nil {
		return 0
	}
	return r.absent.Len()
}

// comesBack forgets what was held of an object, and of its key. It is called under a source's cut lock.
func (r *route) comesBack(d *event.Delta, v *verdict) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.absent == nil {
		return
	}
	n := r.absent.Return(d.Source, d.Key(), r.absenceKey(d, v.lane))
	r.count.filtered.Add(float64(n))
}

// due is called by the wheel.
func (ab *absent) due(a *rules.Absence) {
	for r := ab.owner.Load(); r != nil && !r.lasts(ab, a); r = ab.owner.Load() {
		continue // it has another owner by now
	}
}

// lasts owes what was held long enough. It returns false if it has to be looked at again.
//
//nolint:contextcheck,nolintlint // nobody calls what time does; the one linter heeds this where the other does not see it
func (r *route) lasts(ab *absent, a *rules.Absence) bool {
	v := r.verdict(timeContext{}, a.Delta(), filters.Match{Verdict: filters.Matched})
	there := r.cfg.When.Object != nil && r.cfg.When.Object(a.Delta().Source, a.Delta().Key()) != nil
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.absent != ab:
		return ab.owner.Load() == r // it is nobody's
	case !ab.caughtUp:
		ab.held = append(ab.held, a)
	case there: // nobody was told
		ab.Forget(a)
	default:
		if d := ab.Fire(a, r.now()); d != nil {
			r.append(d, &v)
			r.changed()
		}
	}
	return true
}

// catchUpAbsent lets time make something of what was held before.
func (r *route) catchUpAbsent() {
	r.mu.Lock()
	ab := r.absent
	if ab == nil || ab.caughtUp {
		r.mu.Unlock()
		return
	}
	held := ab.held
	ab.caughtUp, ab.held = true, nil
	r.mu.Unlock()
	for _, a := range held {
		ab.due(a)
	}
}

// inheritAbsent makes r go on with what the route holds that it takes over from. Both locks are held.
func (r *route) inheritAbsent(from *route) {
	ab := from.absent
	if ab == nil {
		return
	}
	renamed := from.cfg.Name != r.cfg.Name
	if renamed {
		for _, key := range ab.Keys() {
			from.farewell = append(from.farewell, checkpoint.RuleRecord{Kind: kindAbsence, Key: []byte(key)})
		}
		ab.Renew()
	}
	from.absent, r.absent = nil, ab
	ab.owner.Store(r)
	if r.cfg.Gone > 0 {
		ab.Configure(r.cfg.Gone, r.now())
	} else {
		ab.Abandon()
	}
}

// restoreAbsent takes up what was held before.
func (r *route) restoreAbsent(record checkpoint.RuleRecord) error {
	if r.absent == nil {
		r.newAbsent() // it is not to be held any more
		defer func() { r.absent.Abandon() }()
	}
	decode := func(payload []byte) (*event.Delta, error) {
		return checkpoint.DecodeDelta(payload, func(source string, saved event.Resource) *event.Resource {
			if r.cfg.When.Resource != nil {
				if known := r.cfg.When.Resource(source); known != nil {
					return known
				}
			}
			return &saved
		})
	}
	return r.absent.Restore(rules.Record{Key: string(record.Key), Value: record.Value}, decode, r.now())
}

// dirtyAbsent hands over what changed in what is held.
func (r *route) dirtyAbsent() (records []checkpoint.RuleRecord) {
	if r.absent == nil {
		return nil
	}
	for _, record := range r.absent.Dirty(r.now(), checkpoint.EncodeDelta) {
		records = append(records, checkpoint.RuleRecord{Kind: kindAbsence, Key: []byte(record.Key), Value: record.Value})
	}
	return records
}
