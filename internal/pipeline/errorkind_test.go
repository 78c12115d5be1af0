package pipeline_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/filters"
)

// TestErrorKinds: an expression that costs too much causes a dead letter at once, counted as cost;
// one that fails otherwise is counted as filter. If the field of a key is absent, the object is its
// own key, which is counted as absent.
func TestErrorKinds(t *testing.T) {
	// Guarantee: never-succeeds, filters-too-expensive, absent-in-key
	fails := func(err error) func(context.Context, *event.Delta) (string, error) {
		return func(context.Context, *event.Delta) (string, error) { return "", fmt.Errorf("evaluation: %w", err) }
	}
	filter := func(err error) filters.Filter {
		return filters.Func(func(context.Context, *event.Delta) (bool, error) { return false, fmt.Errorf("evaluation: %w", err) })
	}
	limit := func(err error) spec.Limit { return spec.Limit{Key: fails(err), Every: time.Hour} }
	tests := map[string]struct {
		route     spec.Settings
		kind      string
		delivered bool
	}{
		"a filter that costs too much":   {spec.Settings{Filter: filter(cel.ErrCost)}, "cost", false},
		"a filter that fails":            {spec.Settings{Filter: filter(errBad)}, "filter", false},
		"a key that costs too much":      {spec.Settings{Key: fails(cel.ErrCost)}, "cost", false},
		"a key of an absent field":       {spec.Settings{Key: fails(cel.ErrAbsent)}, "absent", true},
		"a limit.key that fails":         {spec.Settings{Limit: limit(errBad)}, "filter", false},
		"a limit.key of an absent field": {spec.Settings{Limit: limit(cel.ErrAbsent)}, "absent", true},
		"a batch.by of an absent field":  {spec.Settings{Key: fails(cel.ErrAbsent), Grouped: true, Joint: true}, "absent", true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &recordingSink{}
				test.route.Sinks = to(s)
				b := start(t, test.route)
				b.admit(delta(t, event.Added, "a", 0, 1))
				pass(time.Second)
				if test.delivered {
					equal(t, "delivered", s.got(), "added a@1")
					equal(t, "dead letters", b.letters.got())
				} else {
					equal(t, "delivered", s.got())
					equal(t, "dead letters", b.letters.got(), "a@1 ")
				}
				for _, kind := range []string{"cost", "filter", "absent"} {
					if n := b.value("route_errors_total", "route0", kind); (n == 1) != (kind == test.kind) {
						t.Errorf("%v counted as %s, want %s", n, kind, test.kind)
					}
				}
				b.balanced("route0")
			})
		})
	}
}
