package pipeline_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltarouter/deltarouter/internal/pipeline"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// TestRefused: Refused is called once for each delta that a limit suppressed, or that its handler
// or a sink rejected.
func TestRefused(t *testing.T) {
	// Guarantee: tap
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var got []string
		s := &recordingSink{refuse: func(e event.Event) error {
			if e.Subject == "default/c" {
				return plugins.Reject(errDown)
			}
			return nil
		}}
		h := handleEach(func(d *event.Delta) plugins.Result {
			if d.Key().Name == "b" {
				return plugins.Result{Verdict: plugins.Fail, Err: plugins.Reject(errDown)}
			}
			return ok(d)
		})
		b := openAs(t, pipeline.Config{Refused: func(route string, d *event.Delta, suppressed bool) {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, fmt.Sprintf("%s %s@%s %v", route, d.Key().Name, d.New.ResourceVersion(), suppressed))
		}}, spec.Settings{Sinks: to(s), Handler: h, Limit: spec.Limit{Every: time.Hour}})
		b.Start(t.Context())
		b.admit(delta(t, event.Added, "a", 0, 1), delta(t, event.Updated, "a", 1, 2))
		pass(time.Second)
		b.admit(delta(t, event.Added, "b", 0, 3))
		pass(time.Second)
		b.admit(delta(t, event.Added, "c", 0, 4))
		pass(time.Second)
		equal(t, "refused", got, "route0 a@2 true", "route0 b@3 false", "route0 c@4 false")
	})
}
