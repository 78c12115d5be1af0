package informer_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/internal/transit"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/informer"
	"github.com/deltarouter/deltarouter/test/must"
)

// TestReconfigure: a watch that is still wanted continues without a request, under its new name; an
// unwanted one ends; a new one lists.
func TestReconfigure(t *testing.T) {
	// Guarantee: reload-atomic
	a := newAPI(t)
	a.put("default/a", "web")
	a.put("other/b", "web")
	r := syncedRig(t, a, options{})
	r.sink.want(t, true, "added pods default/a initial", "added pods other/b initial")
	requests := a.seen("list") + a.seen("watch")

	spec := r.watch.Spec()
	var existing []string
	err := r.factory.Reconfigure(t.Context(), []informer.Wanted{{Spec: spec, Sources: []informer.Source{{Name: "renamed"}, {Name: "too"}}}},
		func(h *informer.Held) {
			h.Existing(func(d *event.Delta) event.Admission {
				existing = append(existing, describe(d))
				return nil
			})
		})
	must.Succeed(t, err)
	slices.Sort(existing)
	if want := []string{
		"added renamed default/a initial", "added renamed other/b initial", "added too default/a initial", "added too other/b initial",
	}; !slices.Equal(existing, want) {
		t.Errorf("existing are %q", existing)
	}
	a.put("default/a", "db")
	r.sink.want(t, false, "updated renamed default/a", "updated too default/a")
	if n := a.seen("list") + a.seen("watch"); n != requests {
		t.Errorf("%d requests for a watch that goes on", n-requests)
	}
	if status, ok := r.factory.Status("renamed"); !ok || !status.Synced {
		t.Errorf("status is %+v", status)
	}
	if _, ok := r.factory.Status("pods"); ok || r.metric("source_objects", `"pods"`) != 0 || r.metric("source_objects", "renamed") != 2 {
		t.Error("a source that is gone is counted, or a new one is not")
	}

	// Another watch replaces it.
	other := spec
	other.Namespace = "other"
	wanted := []informer.Wanted{{Spec: other, Store: newMemory(), Sources: []informer.Source{{Name: "pods"}}}}
	must.Succeed(t, r.factory.Reconfigure(t.Context(), wanted, func(*informer.Held) {}))
	eventually(t, "the new watch", func() bool { return len(r.sink.peek()) > 0 })
	r.synced()
	if d := r.sink.peek()[0]; describe(d) != "added pods other/b initial" || transit.Of(d).Epoch != 2 {
		t.Errorf("got %s of epoch %d", describe(d), transit.Of(d).Epoch)
	}
	if specs := r.factory.Specs(); len(specs) != 1 || specs[0] != other {
		t.Errorf("watched are %+v", specs)
	}
}

// TestReconfigureWaits: the watches are not replaced in the middle of a delta, and not at all if
// that does not end.
func TestReconfigureWaits(t *testing.T) {
	a := newAPI(t)
	r := newRig(t, a, options{})
	entered, leave := make(chan struct{}), make(chan struct{})
	r.sink.admit = func(ctx context.Context, _ *event.Delta) error {
		entered <- struct{}{}
		select {
		case <-leave:
		case <-ctx.Done():
		}
		return ctx.Err()
	}
	r.start()
	r.synced()
	a.put("default/a", "web")
	<-entered
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	err := r.factory.Reconfigure(ctx, nil, func(*informer.Held) { t.Error("exchanged in the middle of a delta") })
	if err == nil {
		t.Error("no error")
	}
	if _, ok := r.factory.Status("pods"); !ok {
		t.Error("something has changed")
	}
	exchanged := make(chan error)
	go func() {
		exchanged <- r.factory.Reconfigure(t.Context(), nil, func(*informer.Held) {
			if len(r.sink.peek()) != 1 {
				t.Error("exchanged before the delta was committed")
			}
		})
	}()
	close(leave)
	must.Report(t, <-exchanged)
}
