package pipeline_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/internal/pipeline"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/internal/transit"
	"github.com/deltarouter/deltarouter/pkg/event"
)

func TestOverflow(t *testing.T) {
	// Guarantee: uncounted-drops
	tests := map[string]struct {
		deliver   spec.Deliver
		overflow  spec.Overflow
		want      []string
		coalesced float64
		dropped   float64
	}{
		"every, room enough": {want: []string{"added a@1", "added c@6", "updated a@2", "updated c@7", "updated a@3", "deleted a@4"}},
		"latest":             {deliver: spec.Latest, want: []string{"added a@1", "added c@7", "deleted a@4"}, coalesced: 3},
		"fold":               {overflow: spec.Coalesce, want: []string{"added a@1", "added c@7", "deleted a@4"}, coalesced: 3},
		"dropOldest":         {overflow: spec.DropOldest, want: []string{"added a@1", "added c@6", "updated c@7"}, dropped: 3},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, open := blockingSink()
				capacity := 3
				if test.overflow == spec.Coalesce && test.coalesced == 0 || test.deliver == spec.Latest {
					capacity = 100
				}
				b := start(t, spec.Settings{Sinks: to(s), Deliver: test.deliver, Overflow: test.overflow, Capacity: capacity, Batch: spec.Batch{Size: 1}})
				b.admit(delta(t, event.Added, "a", 0, 1))
				synctest.Wait() // attempted from now on
				b.admit(delta(t, event.Updated, "a", 1, 2), delta(t, event.Updated, "a", 2, 3), delta(t, event.Deleted, "a", 4, 0),
					delta(t, event.Added, "c", 0, 6), delta(t, event.Updated, "c", 6, 7))
				b.balanced("route0")
				open()
				b.drain()
				equal(t, "sink", s.got(), test.want...)
				if n := b.value("route_deltas_total", "route0", metrics.Coalesced); n != test.coalesced {
					t.Errorf("%v coalesced, want %v", n, test.coalesced)
				}
				if n := b.value("route_deltas_total", "route0", metrics.Dropped); n != test.dropped {
					t.Errorf("%v dropped, want %v", n, test.dropped)
				}
				b.balanced("route0")
			})
		})
	}
}

// TestFoldIsBoundedByObjects: beyond its capacity a route has at most the net change of each object
// pending.
func TestFoldIsBoundedByObjects(t *testing.T) {
	// Guarantee: memory-bounded
	synctest.Test(t, func(t *testing.T) {
		s, open := blockingSink()
		b := start(t, spec.Settings{Sinks: to(s), Capacity: 2, Batch: spec.Batch{Size: 1}})
		version := 1
		for round := range 50 {
			for _, name := range []string{"a", "b", "c"} {
				b.admit(deltaOf(t, event.Added, name, "u", 0, version), deltaOf(t, event.Updated, name, "u", version, version+1))
				if round%3 > 0 {
					b.admit(deltaOf(t, event.Deleted, name, "u", version+2, 0))
				}
				version += 3
			}
			if pending := b.Pending("route0"); pending > 1+3*2+1 {
				t.Fatalf("%d pending", pending)
			}
		}
		open()
		b.drain()
		b.balanced("route0")
	})
}

func TestDeletesBeyondCapacityShrink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, open := blockingSink()
		b := start(t, spec.Settings{Sinks: to(s), Capacity: 1, Batch: spec.Batch{Size: 1}})
		b.admit(delta(t, event.Added, "a", 0, 1))
		synctest.Wait()
		text := `{"kind":"Pod","metadata":{"name":"b","namespace":"default","uid":"u","resourceVersion":"3"},"spec":"` + strings.Repeat("x", 5000) + `"}`
		o, err := event.ParseObject(pods, text)
		if err != nil {
			t.Fatal(err)
		}
		b.admit(&event.Delta{Source: "pods", Op: event.Deleted, Old: o, Seen: time.Now()})
		open()
		b.drain()
		equal(t, "sink", s.got(), "added a@1", "deleted b@3")
		if data := s.events[1].Data; len(data) > 500 {
			t.Errorf("the delete waited with %d bytes", len(data))
		}
	})
}

func TestBlock(t *testing.T) {
	// Guarantee: route-isolation
	synctest.Test(t, func(t *testing.T) {
		s, open := blockingSink()
		b := start(t, spec.Settings{Sinks: to(s), Overflow: spec.Block, Capacity: 2, Batch: spec.Batch{Size: 1}})
		b.admit(delta(t, event.Added, "a", 0, 1), delta(t, event.Added, "b", 0, 2))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if commit, err := b.Admit(ctx, delta(t, event.Added, "c", 0, 3)); commit != nil || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("no room: %v", err)
		}
		admitted := make(chan struct{})
		go func() {
			b.admit(delta(t, event.Added, "c", 0, 3))
			close(admitted)
		}()
		pass(time.Minute)
		select {
		case <-admitted:
			t.Error("admitted although there was no room")
		default:
		}
		open()
		<-admitted
		b.drain()
		equal(t, "sink", s.got(), "added a@1", "added b@2", "added c@3")
		b.balanced("route0")
	})
}

func TestBlockedAdmitEndsWithDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, open := blockingSink()
		b := start(t, spec.Settings{Sinks: to(s), Overflow: spec.Block, Capacity: 1})
		b.admit(delta(t, event.Added, "a", 0, 1))
		refused := make(chan error)
		go func() {
			_, err := b.Admit(t.Context(), delta(t, event.Added, "b", 0, 2))
			refused <- err
		}()
		synctest.Wait()
		go open()
		b.drain()
		if err := <-refused; err != nil && !errors.Is(err, pipeline.ErrStopped) {
			t.Error(err)
		}
	})
}

// TestBlockLetsTheFirstListPass: a route that waits for its own source must not block the first
// list of that source.
func TestBlockLetsTheFirstListPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ready := &recordingSink{}, make(chan struct{})
		b := start(t, spec.Settings{Sinks: to(s), Overflow: spec.Block, Capacity: 1, Ready: ready, Existing: true})
		for i, name := range []string{"a", "b", "c"} {
			d := delta(t, event.Added, name, 0, i+1)
			d.Initial = true
			b.admit(d)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := b.Admit(ctx, delta(t, event.Updated, "a", 1, 9)); err == nil {
			t.Error("an update passed although there is no room")
		}
		close(ready)
		b.drain()
		equal(t, "sink", s.got(), "added a@1", "added b@2", "added c@3")
	})
}

// TestBlockLetsTheListAfterARestartPass: nor must it block the list that is compared with the saved
// objects.
func TestBlockLetsTheListAfterARestartPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ready := &recordingSink{}, make(chan struct{})
		b := start(t, spec.Settings{Sinks: to(s), Overflow: spec.Block, Capacity: 1, Ready: ready})
		b.admit(delta(t, event.Updated, "c", 1, 2)) // the queue is full now
		for _, d := range []*event.Delta{delta(t, event.Deleted, "a", 3, 0), delta(t, event.Updated, "b", 4, 5)} {
			transit.Of(d).Listed = true
			b.admit(d)
		}
		close(ready)
		b.drain()
		equal(t, "sink", s.got(), "updated c@2", "deleted a@3", "updated b@5")
	})
}

// TestUnreadyIsBoundedToo: deltas that wait for a look-up are coalesced, unseen by the filter, only
// beyond the capacity.
func TestUnreadyIsBoundedToo(t *testing.T) {
	// Guarantee: memory-bounded
	synctest.Test(t, func(t *testing.T) {
		for overflow, want := range map[spec.Overflow][]string{
			// there was room again for the last two
			spec.Coalesce:   {"added a@7", "updated a@8", "updated a@9"},
			spec.DropOldest: {"updated a@7", "updated a@8", "updated a@9"},
		} {
			s, ready := &recordingSink{}, make(chan struct{})
			b := start(t, spec.Settings{Sinks: to(s), Capacity: 3, Ready: ready, Overflow: overflow})
			b.admit(delta(t, event.Added, "a", 0, 1))
			for version := 2; version < 10; version++ {
				b.admit(delta(t, event.Updated, "a", version-1, version))
				if pending := b.Pending("route0"); pending > 3 {
					t.Errorf("%d pending", pending)
				}
			}
			close(ready)
			b.drain()
			b.balanced("route0")
			equal(t, "sink", s.got(), want...)
		}
	})
}
