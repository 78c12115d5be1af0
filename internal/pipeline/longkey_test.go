package pipeline_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltarouter/deltarouter/internal/pipeline"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// TestLongKeys: a very long key or name takes no more memory than a short one in the state of rules
// and in ordering keys, and still distinguishes objects.
func TestLongKeys(t *testing.T) {
	const most = 600
	long := strings.Repeat("x", 250_000)
	byLetter := func(_ context.Context, d *event.Delta) (string, error) { return long + d.Key().Name[:1], nil }
	once := spec.Limit{Every: time.Hour}
	ofKey := once
	ofKey.Key = byLetter
	for name, test := range map[string]struct {
		route spec.Settings
		pods  []string
		want  int
	}{
		"key":                 {spec.Settings{Key: byLetter}, []string{"a1", "a2", "b1"}, 3},
		"batch.by":            {spec.Settings{Key: byLetter, Grouped: true, Batch: spec.Batch{Size: 8, Wait: time.Second}}, []string{"a1", "a2", "b1"}, 3},
		"limit.key":           {spec.Settings{Limit: ofKey}, []string{"a1", "a2", "b1"}, 2},
		"limit of the object": {spec.Settings{Limit: once}, []string{"a" + long, "a" + long, "b" + long}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, k := &recordingSink{}, &flakyStore{fakeStore: fakeStore{}}
				test.route.Sinks = to(s)
				b := openAs(t, pipeline.Config{Store: k}, test.route)
				b.Start(t.Context())
				for i, pod := range test.pods {
					b.admit(delta(t, event.Updated, pod, i+1, i+2))
				}
				pass(time.Minute)
				if len(s.events) != test.want {
					t.Fatalf("%d delivered, want %d", len(s.events), test.want)
				}
				keys := map[string]bool{}
				for _, e := range s.events {
					if keys[e.Key] = true; len(e.Key) > most {
						t.Errorf("an event has a key of %d bytes", len(e.Key))
					}
				}
				if test.route.Key != nil && len(keys) != 2 {
					t.Errorf("%d keys, want 2: %s", len(keys), fmt.Sprint(keys))
				}
				for _, cut := range b.Dirty() {
					for _, r := range cut.Rules {
						if len(r.Key) > most {
							t.Errorf("a record has a key of %d bytes", len(r.Key))
						}
					}
				}
			})
		})
	}
}
