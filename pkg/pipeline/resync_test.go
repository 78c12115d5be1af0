package pipeline_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/filters"
	"github.com/deltarouter/deltarouter/pkg/pipeline"
)

// TestAdmitTo: what is put through for one route reaches that route alone, whatever its ops are, if its filter wants it.
func TestAdmitTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, other := &sink{}, &sink{}
		ready := make(chan struct{})
		r, o := routeOf("one", "1", one), routeOf("other", "1", other)
		r.Ops, r.Ready, o.Sinks[0].Name = []event.Op{event.Added}, ready, "other"
		r.Filter = filters.Func(func(_ context.Context, d *event.Delta) (bool, error) { return d.Key().Name != "filtered", nil })
		b := openAs(t, pipeline.Config{Store: disk{}}, r, o)
		b.Start(t.Context())
		put := func(name string) {
			commit, err := b.AdmitTo(t.Context(), "one", delta(t, event.Sync, name, 0, 1))
			if err != nil {
				t.Fatal(err)
			}
			if commit != nil {
				commit()
			}
		}
		put("early")
		put("filtered") // nobody knows yet
		if n := b.Owed("one"); n != 2 {
			t.Errorf("%d owed, want both", n)
		}
		close(ready)
		pass(time.Second)
		put("late")
		put("filtered")
		pass(time.Second)
		if got := one.got(); !slices.Equal(got, []string{"sync early@1", "sync late@1"}) {
			t.Errorf("got %q", got)
		}
		if got := other.got(); len(got) > 0 {
			t.Errorf("another route got %q", got)
		}
		if _, err := b.AdmitTo(t.Context(), "none", delta(t, event.Sync, "a", 0, 1)); !errors.Is(err, pipeline.ErrNoRoute) {
			t.Errorf("error is %v", err)
		}
		if got := b.Takers("pods", event.Sync); !slices.Equal(got, []string{"other"}) {
			t.Errorf("routes with sync are %q", got)
		}
		if b.SourcesOf("none") != nil || !slices.Equal(b.SourcesOf("one"), []string{"pods"}) {
			t.Error("other sources than the route has")
		}
		b.drain()
		if _, err := b.AdmitTo(t.Context(), "one", delta(t, event.Sync, "a", 0, 1)); !errors.Is(err, pipeline.ErrStopped) {
			t.Errorf("error is %v", err)
		}
	})
}
