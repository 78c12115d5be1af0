package pipeline_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltarouter/deltarouter/internal/pipeline"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/internal/trace"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// decisions are the records that the history would have, as one line each.
type decisions struct {
	mu    sync.Mutex
	lines []string
}

// keeping starts a pipeline of one route whose decisions are kept.
func keeping(t *testing.T, r spec.Settings) (*harness, *decisions) {
	t.Helper()
	var tracer trace.Tracer
	kept, begin := &decisions{}, time.Now()
	at := func(end time.Time) string {
		if end.IsZero() {
			return "?"
		}
		return end.Sub(begin).Round(time.Second).String()
	}
	tracer.Keep(func(r *trace.Record) {
		line := fmt.Sprintf("%s %s@%s %s", r.Op, r.Name, r.RV, r.Result)
		if r.Hold.Rule != "" {
			line += " " + r.Hold.Rule + " until " + at(r.Hold.Until)
		}
		if r.Hold.Latest.After(r.Hold.Until) {
			line += " latest " + at(r.Hold.Latest)
		}
		if r.Repeat > 0 {
			line += fmt.Sprintf(" reminder %d", r.Repeat)
		}
		if r.Into != "" {
			line += " into " + r.Into
		}
		if r.Undone {
			line += " undone"
		}
		kept.mu.Lock()
		defer kept.mu.Unlock()
		kept.lines = append(kept.lines, line)
	})
	b := openAs(t, pipeline.Config{Tracer: &tracer}, r)
	b.Start(t.Context())
	return b, kept
}

func (d *decisions) expect(t *testing.T, want ...string) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	if !slices.Equal(d.lines, want) {
		t.Errorf("got\n  %s\nwant\n  %s", strings.Join(d.lines, "\n  "), strings.Join(want, "\n  "))
	}
}

// TestHeldBack: each delta that a rule holds back, or that is never reported because of one, has a
// record of the rule, and until when.
func TestHeldBack(t *testing.T) {
	conditional := func(s spec.When, ops ...event.Op) spec.Settings {
		s.Filter, s.Version, s.Resource = whenOn, "1", resourceOf
		return spec.Settings{Name: "r", Ops: ops, Existing: true, When: s}
	}
	limited := func(r spec.Settings, every time.Duration) spec.Settings {
		r.Limit = spec.Limit{Every: every, Key: func(context.Context, *event.Delta) (string, error) { return "all", nil }}
		return r
	}
	for _, c := range []struct {
		name  string
		route spec.Settings
		does  func(t *testing.T, b *harness)
		want  []string
	}{
		{"for", conditional(spec.When{For: time.Minute}, edges...), func(t *testing.T, b *harness) {
			b.admit(conditionDelta(t, event.Added, "a", 1, true), conditionDelta(t, event.Added, "b", 2, true))
			pass(20 * time.Second)
			b.admit(conditionDelta(t, event.Updated, "a", 3, true), conditionDelta(t, event.Updated, "b", 4, false))
			pass(time.Minute)
			b.admit(conditionDelta(t, event.Deleted, "a", 5, true))
		}, []string{
			"entered a@1 held for until 1m0s", "entered b@2 held for until 1m0s", "left b@4 cancelled for until ?", "entered a@3 delivered", "left a@5 delivered",
		}},
		{"only left", conditional(spec.When{For: time.Minute}, event.Left), func(t *testing.T, b *harness) {
			b.admit(conditionDelta(t, event.Added, "a", 1, true), conditionDelta(t, event.Updated, "a", 2, false))
		}, []string{"left a@2 cancelled for until ?"}},
		{"existing", spec.Settings{Name: "r", Ops: edges, When: spec.When{Filter: whenOn, Version: "1", Resource: resourceOf}}, func(t *testing.T, b *harness) {
			first := conditionDelta(t, event.Added, "a", 1, true)
			first.Initial = true
			b.admit(first, conditionDelta(t, event.Updated, "a", 2, false))
		}, []string{"entered a@1 skipped existing until ?"}},
		{"condition and limit", limited(conditional(spec.When{Every: 5 * time.Minute}, edges...), 2*time.Minute), func(t *testing.T, b *harness) {
			b.admit(conditionDelta(t, event.Added, "a", 1, true))
			pass(time.Second)
			b.admit(conditionDelta(t, event.Added, "b", 2, true), conditionDelta(t, event.Added, "c", 3, true))
			pass(time.Minute)
			b.admit(conditionDelta(t, event.Updated, "c", 4, false), conditionDelta(t, event.Updated, "a", 5, false))
			pass(2 * time.Minute)
		}, []string{
			"entered a@1 delivered", "entered b@2 held limit until 2m0s", "entered c@3 held limit until ?",
			"left c@4 cancelled limit until ?", "left a@5 suppressed limit until ?", "entered b@2 delivered",
		}},
		{"reminders and limit", limited(conditional(spec.When{Every: time.Minute}, edges...), 90*time.Second), func(t *testing.T, b *harness) {
			b.admit(conditionDelta(t, event.Added, "a", 1, true))
			pass(2*time.Minute + time.Second)
		}, []string{"entered a@1 delivered", "entered a@1 suppressed limit until 1m30s reminder 1", "entered a@1 delivered reminder 1"}},
		{"delete hold", spec.Settings{Name: "r", Ops: []event.Op{event.Deleted}, Hold: time.Hour}, func(t *testing.T, b *harness) {
			b.admit(conditionDelta(t, event.Deleted, "a", 1, true), conditionDelta(t, event.Deleted, "b", 2, true))
			pass(time.Minute)
			b.admit(conditionDelta(t, event.Added, "b", 3, true))
			pass(time.Hour)
		}, []string{"deleted a@1 held for until 1h0m0s", "deleted b@2 held for until 1h0m0s", "deleted b@2 cancelled for until ?", "deleted a@1 delivered"}},
		{"debounce", spec.Settings{Name: "r", Debounce: spec.Debounce{Quiet: 10 * time.Second, Max: time.Minute}}, func(t *testing.T, b *harness) {
			b.admit(delta(t, event.Updated, "a", 1, 2))
			pass(5 * time.Second)
			b.admit(delta(t, event.Updated, "a", 2, 3), delta(t, event.Updated, "b", 1, 4))
			pass(5 * time.Second)
			b.admit(delta(t, event.Updated, "a", 3, 5))
			pass(time.Minute)
			b.admit(delta(t, event.Added, "c", 0, 6), delta(t, event.Deleted, "c", 6, 0))
		}, []string{
			"updated a@2 held debounce until 10s latest 1m0s", "updated a@2 coalesced into 3", "updated b@4 held debounce until 15s latest 1m5s",
			"updated a@3 coalesced into 5", "updated b@4 delivered", "updated a@5 delivered",
			"added c@6 held debounce until 1m20s latest 2m10s", "added c@6 coalesced undone", "deleted c@6 coalesced undone",
		}},
		{"limit", limited(spec.Settings{Name: "r"}, time.Minute), func(t *testing.T, b *harness) {
			b.admit(delta(t, event.Added, "a", 0, 1))
			pass(time.Second)
			b.admit(delta(t, event.Added, "b", 0, 2))
		}, []string{"added a@1 delivered", "added b@2 suppressed limit until 1m0s"}},
		{"a group and its limit", limited(spec.Settings{
			Name: "r", Grouped: true, Joint: true, Batch: spec.Batch{Size: 10, Wait: 10 * time.Second}, Key: initials, Handler: joint,
		}, time.Minute), func(t *testing.T, b *harness) {
			b.admit(delta(t, event.Added, "x", 0, 1))
			pass(20 * time.Second)
			b.admit(delta(t, event.Added, "x1", 0, 2), delta(t, event.Added, "x2", 0, 3))
			pass(20 * time.Second)
		}, []string{
			"added x@1 held batch until 10s", "added x@1 delivered", "added x1@2 held batch until 30s", "added x2@3 held batch until 30s",
			"added x2@3 suppressed limit until 1m10s", "added x1@2 suppressed limit until 1m10s",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if c.route.Sinks = to(&recordingSink{}); c.route.Handler == nil {
					c.route.Handler = describingHandler
				}
				b, kept := keeping(t, c.route)
				c.does(t, b)
				pass(time.Second)
				kept.expect(t, c.want...)
			})
		})
	}
}

// joint makes one event of a group.
var joint = handlerFunc(func(_ context.Context, batch []*event.Delta) ([]plugins.Result, error) {
	results := make([]plugins.Result, len(batch))
	results[len(batch)-1] = ok(batch[len(batch)-1])
	return results, nil
})

// TestHeldBackOff: traces have no records of rules.
func TestHeldBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, f := traced(t, true, spec.Settings{Name: "r", Sinks: to(&recordingSink{}), Debounce: spec.Debounce{Quiet: time.Second}, Limit: spec.Limit{Every: time.Minute}})
		b.admit(delta(t, event.Added, "a", 0, 1))
		pass(2 * time.Second)
		equal(t, "spans", f.lines(), "r a delivered [deliver s0 1]")
	})
}
