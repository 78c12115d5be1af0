package deliver_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/internal/outdated"
	"github.com/deltarouter/deltarouter/internal/pipeline/queue"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// versions is a handler whose events are the resourceVersions of the objects.
type versions struct{ echo }

func (versions) Handle(_ context.Context, deltas []*event.Delta) ([]plugins.Result, error) {
	results := make([]plugins.Result, len(deltas))
	for i, d := range deltas {
		results[i] = plugins.Result{Events: []plugins.Emit{{Data: []byte(`"` + d.New.ResourceVersion() + `"`)}}}
	}
	return results, nil
}

// TestOutdated: the events that a sink found outdated are made again, of the present state of the
// object, for the sinks that are not done with the delta. After 30 times they are rejected.
func TestOutdated(t *testing.T) {
	// Guarantee: kubernetes-outdated
	for name, handler := range map[string]plugins.Handler{"a handler": versions{}, "no handler": nil} {
		t.Run(name, func(t *testing.T) {
			r := &fakeRoute{}
			version := 1
			settings := spec.Settings{Handler: handler, Retry: spec.Retry{Backoff: time.Second, Max: time.Minute}}
			settings.Cached.Object = func(*event.Delta) *event.Object {
				version++
				o, err := event.ParseObject(&event.Resource{}, fmt.Sprintf(`{"metadata":{"name":"a","uid":"u","resourceVersion":"%d"}}`, version))
				if err != nil {
					t.Error(err)
				}
				return o
			}
			var got []string
			takes := false
			sinks := []sinkFunc{r.noted("one"), func(events []event.Event) []error {
				got = append(got, string(events[0].Data))
				if takes {
					return nil
				}
				return []error{plugins.Postpone(outdated.Mark(errors.New("it has changed")), 0)}
			}, r.noted("three")}
			entries := r.run(t, settings, sinks, "a")
			cfg := r.configure(settings, sinks)
			for range 2 {
				if p := entries[0].Progress; p.State != queue.Later || p.Handled || !p.Alone || p.Closed != 0b101 || p.Delay <= 0 {
					t.Fatalf("after the first pass: %+v", p)
				}
				takes = len(got) == 2
				r.pass(t, cfg, entries)
			}
			if entries[0].Progress.State != queue.Done || len(got) != 3 || !strings.Contains(got[1], `"2"`) || !strings.Contains(got[2], `"3"`) {
				t.Errorf("got %q, %+v", got, entries[0].Progress)
			}
			r.expect(t, "write 1 to one", "report a 1", "report a 1", "write 1 to three")
		})
	}
	r := &fakeRoute{}
	sinks := []sinkFunc{func([]event.Event) []error {
		return []error{plugins.Postpone(outdated.Mark(errors.New("it has changed")), 0)}
	}}
	entries := r.run(t, spec.Settings{}, sinks, "a")
	cfg := r.configure(spec.Settings{}, sinks)
	passes := 1
	for ; entries[0].Progress.State == queue.Later; passes++ {
		r.pass(t, cfg, entries)
	}
	if passes != 31 || entries[0].Progress.Outcome != queue.DeadLettered {
		t.Errorf("%d passes, %+v", passes, entries[0].Progress)
	}
}
