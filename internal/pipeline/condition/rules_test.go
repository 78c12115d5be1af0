package condition_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/internal/pipeline/condition"
	"github.com/deltarouter/deltarouter/internal/pipeline/rules"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/internal/transit"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/filters"
)

var (
	start    = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	resource = &event.Resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, Cluster: "c"}
	edges    = []event.Op{event.Entered, event.Left}
	// held is the filter of conditions, which is not evaluated: the tests say whether it holds.
	held filters.Filter = filters.Func(func(context.Context, *event.Delta) (bool, error) { panic("evaluated") })
)

func object(t *testing.T, name string, version int) *event.Object {
	t.Helper()
	o, err := event.ParseObject(resource, fmt.Sprintf(`{"metadata":{"name":%q,"uid":"uid-%s","resourceVersion":"%d"}}`, name, name, version))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func updated(t *testing.T, name string, version int) *event.Delta {
	return &event.Delta{Source: "pods", Op: event.Updated, New: object(t, name, version)}
}

func deleted(t *testing.T, name string, version int) *event.Delta {
	return &event.Delta{Source: "pods", Op: event.Deleted, Old: object(t, name, version)}
}

// fakeRoute is the owner of rules, with a clock and a checkpoint.
type fakeRoute struct {
	*condition.Rules

	t          *testing.T
	clock      *timer.Fake
	conditions []*rules.Condition // with expired timers
	holds      []*rules.DeleteHold
	saved      map[string]checkpoint.RuleRecord
}

// open creates the rules from the saved records.
func open(t *testing.T, settings spec.Settings, at time.Time, saved map[string]checkpoint.RuleRecord) *fakeRoute {
	t.Helper()
	r := &fakeRoute{t: t, clock: timer.NewFake(at), saved: map[string]checkpoint.RuleRecord{}}
	maps.Copy(r.saved, saved)
	wheel := timer.NewWheel(r.clock)
	t.Cleanup(wheel.Close)
	settings.Sources = []string{"pods"}
	r.Rules = condition.New(condition.Env{Wheel: wheel, Census: rules.NewCensus(), Owner: r, Durable: true}, settings.Prepare(0, metrics.New(), slog.New(slog.DiscardHandler)), r.clock.Now())
	if len(saved) > 0 {
		if err := r.Restore(slices.Collect(maps.Values(saved)), r.clock.Now()); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// ConditionDue implements [condition.Owner].
func (r *fakeRoute) ConditionDue(c *rules.Condition) { r.conditions = append(r.conditions, c) }

// HoldDue implements [condition.Owner].
func (r *fakeRoute) HoldDue(a *rules.DeleteHold) { r.holds = append(r.holds, a) }

// write writes the changes to the checkpoint.
func (r *fakeRoute) write() {
	for _, record := range r.Dirty(nil, r.clock.Now()) {
		key := string(record.Kind) + string(record.Key)
		if record.Value == nil {
			delete(r.saved, key)
		} else {
			r.saved[key] = record
		}
	}
}

func (r *fakeRoute) observe(d *event.Delta, holds bool) []rules.Edge {
	return r.Conditions.Observe(nil, d, condition.Observation{Holds: holds}, r.clock.Now())
}

// kinds returns the kinds of the records in the checkpoint.
func (r *fakeRoute) kinds() string {
	return strings.Join(slices.Sorted(func(yield func(string) bool) {
		for key := range r.saved {
			if !yield(key[:1]) {
				return
			}
		}
	}), "")
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// TestEdgeWaitsForItsState: an edge is delivered when a cut with its state is saved, and not after
// an earlier cut. A reminder waits for no cut.
func TestEdgeWaitsForItsState(t *testing.T) {
	// Guarantee: conditions-alternate
	r := open(t, spec.Settings{When: spec.When{Filter: held, Version: "1"}, Ops: edges}, start, nil)
	first := r.observe(updated(t, "a", 1), true)
	r.write()
	second := r.observe(updated(t, "b", 2), true)
	if len(first) != 1 || len(second) != 1 || transit.Of(first[0]).Durable == nil || closed(transit.Of(first[0]).Durable) {
		t.Fatalf("edges %v and %v", first, second)
	}
	r.Saved()
	if !closed(transit.Of(first[0]).Durable) || closed(transit.Of(second[0]).Durable) {
		t.Errorf("after the first save: the first may be delivered %v, the second %v", closed(transit.Of(first[0]).Durable), closed(transit.Of(second[0]).Durable))
	}
	r.write()
	r.Saved()
	if !closed(transit.Of(second[0]).Durable) {
		t.Error("after the second save the second may not be delivered")
	}
	again := r.Conditions.Observe(nil, updated(t, "a", 1), condition.Observation{Holds: true, Remind: true}, r.clock.Now())
	if len(again) != 1 || again[0].Repeat != 1 || transit.Of(again[0]).Durable != nil {
		t.Errorf("reminder: %v", again)
	}
}

// TestOps: a route gets only the edges of its ops.
func TestOps(t *testing.T) {
	for op, want := range map[event.Op]string{event.Entered: "entered ", event.Left: "left "} {
		r := open(t, spec.Settings{When: spec.When{Filter: held}, Ops: []event.Op{op}}, start, nil)
		got := ""
		for _, edge := range append(r.observe(updated(t, "a", 1), true), r.observe(updated(t, "a", 2), false)...) {
			got += edge.Op.String() + " "
		}
		if got != want {
			t.Errorf("%s: %q", op, got)
		}
	}
}

// TestRemoved: the state of a rule that is removed while the router is down is deleted, and does
// not return with the rule.
func TestRemoved(t *testing.T) {
	// Guarantee: conditions-reconfigured
	limit := spec.Limit{Every: time.Hour}
	for name, c := range map[string]struct {
		cfg  spec.Settings
		do   func(r *fakeRoute)
		want string // the kinds of the records before
	}{
		"a condition that holds": {spec.Settings{When: spec.When{Filter: held, Version: "1"}, Ops: edges}, func(r *fakeRoute) {
			r.observe(updated(t, "a", 1), true)
			r.observe(updated(t, "b", 1), true)
		}, "ccv"},
		"a condition that holds for nothing": {spec.Settings{When: spec.When{Filter: held, Version: "1"}, Ops: edges}, func(*fakeRoute) {}, "v"},
		"deletes": {spec.Settings{Hold: time.Minute}, func(r *fakeRoute) {
			r.Holds.Hold(deleted(t, "a", 1), "", r.clock.Now())
			r.Holds.Hold(deleted(t, "b", 1), "", r.clock.Now())
		}, "aa"},
		"a limit": {spec.Settings{Limit: limit}, func(r *fakeRoute) {
			r.Limit.Allow(updated(t, "a", 1), "a", 1, r.clock.Now())
			r.Limit.Allow(updated(t, "b", 1), "b", 1, r.clock.Now())
		}, "ll"},
	} {
		t.Run(name, func(t *testing.T) {
			r := open(t, c.cfg, start, nil)
			c.do(r)
			r.write()
			if got := r.kinds(); got != c.want {
				t.Errorf("before: records %q, want %q", got, c.want)
			}
			r = open(t, spec.Settings{}, start.Add(time.Second), r.saved)
			r.CatchUp()
			r.write()
			r.clock.Advance(r.clock.Now().Add(time.Hour))
			if len(r.conditions)+len(r.holds) > 0 || strings.ContainsAny(r.kinds(), "cal") {
				t.Errorf("removed: %d timers, records %q", len(r.conditions)+len(r.holds), r.kinds())
			}
			known := c.cfg
			known.Known = true
			r = open(t, known, start.Add(time.Minute), r.saved)
			if page := r.Page(condition.Holding{}, 10, r.clock.Now()); len(page) > 0 || r.Limit.Keys() > 0 {
				t.Errorf("there again: %v, %d keys", page, r.Limit.Keys())
			}
			if c.cfg.When.Filter != nil && r.Conditions.Rescanned() {
				t.Error("there again: what happened meanwhile was not seen, and it needs no rescan")
			}
		})
	}
}

// TestFireAnotherObject: a timer that expires while its object is replaced does not report the new
// object.
func TestFireAnotherObject(t *testing.T) {
	r := open(t, spec.Settings{When: spec.When{Filter: held, For: time.Minute}, Ops: edges}, start, nil)
	r.CatchUp()
	r.observe(updated(t, "a", 1), true)
	r.clock.Advance(r.clock.Now().Add(time.Minute))
	if len(r.conditions) != 1 {
		t.Fatalf("%d timers expired", len(r.conditions))
	}
	c := r.conditions[0]
	d := r.Conditions.Due(c, r.clock.Now())
	if d == nil || d.New.ResourceVersion() != "1" {
		t.Fatalf("due: %v", d)
	}
	r.observe(updated(t, "a", 2), true)
	if edges, ok := r.Conditions.Fire(c, d, "", r.clock.Now()); ok || len(edges) > 0 {
		t.Errorf("fired with the keys of another object: %v", edges)
	}
	d = r.Conditions.Due(c, r.clock.Now())
	if edges, ok := r.Conditions.Fire(c, d, "", r.clock.Now()); !ok || len(edges) != 1 || edges[0].New.ResourceVersion() != "2" {
		t.Errorf("fired %v, %v", edges, ok)
	}
}

// TestFailureOfAnotherCondition: an object on which a condition failed becomes a dead letter once,
// and once more with another condition.
func TestFailureOfAnotherCondition(t *testing.T) {
	cfg := spec.Settings{When: spec.When{Filter: held, Version: "1"}, Sources: []string{"pods"}, Ops: edges}
	r := open(t, cfg, start, nil)
	d := updated(t, "a", 1)
	got := []bool{r.Conditions.Doubt(d), r.Conditions.Doubt(d)}
	r.Configure(cfg.Prepare(0, metrics.New(), slog.New(slog.DiscardHandler)), r.clock.Now())
	got = append(got, r.Conditions.Doubt(d))
	cfg.When.Version = "2"
	r.Configure(cfg.Prepare(0, metrics.New(), slog.New(slog.DiscardHandler)), r.clock.Now())
	got = append(got, r.Conditions.Doubt(d), r.Conditions.Doubt(d))
	if want := []bool{true, false, false, true, false}; !slices.Equal(got, want) {
		t.Errorf("dead letters %v, want %v", got, want)
	}
}

// TestClosed: the rules of a removed route do nothing, even for a timer that has already expired.
func TestClosed(t *testing.T) {
	cfg := spec.Settings{When: spec.When{Filter: held, For: time.Minute}, Ops: edges, Hold: time.Minute, Limit: spec.Limit{Every: time.Hour}}
	r := open(t, cfg, start, nil)
	r.CatchUp()
	r.observe(updated(t, "a", 1), true)
	r.Holds.Hold(deleted(t, "b", 1), "", r.clock.Now())
	r.clock.Advance(r.clock.Now().Add(time.Minute))
	if len(r.conditions) != 1 || len(r.holds) != 1 {
		t.Fatalf("%d conditions and %d deletes are due", len(r.conditions), len(r.holds))
	}
	r.Close()
	if d := r.Conditions.Due(r.conditions[0], r.clock.Now()); d != nil {
		t.Errorf("due: %v", d)
	}
	if edges, ok := r.Conditions.Fire(r.conditions[0], updated(t, "a", 1), "", r.clock.Now()); ok || len(edges) > 0 {
		t.Errorf("fired: %v", edges)
	}
	if d := r.Holds.Fire(r.holds[0], false, r.clock.Now()); d != nil {
		t.Errorf("fired: %v", d)
	}
	if got := r.observe(updated(t, "c", 1), true); len(got) > 0 || r.Holds.On() || r.Holds.Cancel("pods", event.Key{Name: "b"}, "") > 0 {
		t.Errorf("observed %v", got)
	}
	if page := r.Page(condition.Holding{}, 10, r.clock.Now()); len(page) > 0 {
		t.Errorf("active: %v", page)
	}
}

// TestCount: each suppressed edge and each evicted key is counted once.
func TestCount(t *testing.T) {
	cfg := spec.Settings{When: spec.When{Filter: held}, Ops: edges, Hold: time.Minute, Limit: spec.Limit{Every: time.Hour, MaxKeys: 1}}
	r := open(t, cfg, start, nil)
	observe := func(name, key string) {
		r.Conditions.Observe(nil, updated(t, name, 1), condition.Observation{Holds: true, LimitKey: key}, r.clock.Now())
	}
	observe("a", "x")
	observe("b", "x") // suppressed
	observe("c", "y") // x is evicted
	r.Holds.Hold(deleted(t, "d", 1), "", r.clock.Now())
	want := condition.Counts{Waiting: 1, Active: 3, Keys: 1, Suppressed: 1, Forgotten: 1}
	if got := r.Count(); got != want {
		t.Errorf("first %+v, want %+v", got, want)
	}
	want.Suppressed, want.Forgotten = 0, 0
	if got := r.Count(); got != want {
		t.Errorf("then %+v, want %+v", got, want)
	}
}

// TestHoldsWant: a route with delete holds holds deletes and deselections, and nothing else.
func TestHoldsWant(t *testing.T) {
	holding, other := open(t, spec.Settings{Hold: time.Minute}, start, nil), open(t, spec.Settings{}, start, nil)
	for _, op := range event.Ops() {
		want := op == event.Deleted || op == event.Deselected
		if got := holding.Holds.Wants(&event.Delta{Op: op}); got != want {
			t.Errorf("%s: %v, want %v", op, got, want)
		}
		if other.Holds.Wants(&event.Delta{Op: op}) {
			t.Errorf("%s: a route without for holds it", op)
		}
	}
}
