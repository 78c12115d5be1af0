package pipeline_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// TestOrderKey: an event contains the ordering key of the route and its delta, with a handler and
// without.
func TestOrderKey(t *testing.T) {
	owner := func(context.Context, *event.Delta) (string, error) { return "team-a", nil }
	for name, test := range map[string]struct {
		route spec.Settings
		want  string
	}{
		"an object":            {spec.Settings{}, "pods/default/a"},
		"a key":                {spec.Settings{Key: owner}, "team-a"},
		"a key with a handler": {spec.Settings{Key: owner, Handler: handleEach(ok)}, "team-a"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, d := &recordingSink{}, delta(t, event.Added, "a", 0, 1)
				test.route.Sinks = to(s)
				b := start(t, test.route)
				b.admit(d)
				pass(time.Second)
				if len(s.got()) != 1 || s.events[0].OrderKey() != test.want || s.events[0].Of != d {
					t.Errorf("got %+v, want the key %s", s.events, test.want)
				}
			})
		})
	}
}
