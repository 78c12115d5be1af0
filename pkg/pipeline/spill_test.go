package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltarouter/deltarouter/pkg/checkpoint"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/metrics"
	"github.com/deltarouter/deltarouter/pkg/pipeline"
)

// startOn starts a pipeline with a disk.
func startOn(t *testing.T, cfg pipeline.Config, routes ...pipeline.Route) (*bench, *flakyDisk) {
	t.Helper()
	k := &flakyDisk{disk: disk{}}
	cfg.Store = k
	b := openAs(t, cfg, routes...)
	b.Start(t.Context())
	return b, k
}

// updates makes versions from to to of objects a to e, by turns.
func updates(t *testing.T, from, to int) (deltas []*event.Delta) {
	t.Helper()
	for v := from; v <= to; v++ {
		deltas = append(deltas, delta(t, event.Updated, string(rune('a'+v%5)), max(1, v-5), v))
	}
	return deltas
}

// perObject checks that what came of each object is these versions, in order.
func perObject(t *testing.T, got []string, from, to int) {
	t.Helper()
	for i := range 5 {
		name := string(rune('a' + i))
		var want []string
		for v := from; v <= to; v++ {
			if v%5 == i {
				want = append(want, fmt.Sprintf("updated %s@%d", name, v))
			}
		}
		if mine := only(got, " "+name+"@"); !slices.Equal(mine, want) {
			t.Errorf("of %s came %q, want %q", name, mine, want)
		}
	}
}

func (b *bench) statusOf(name string) pipeline.RouteStatus {
	b.t.Helper()
	for _, s := range b.Status() {
		if s.Name == name {
			return s
		}
	}
	b.t.Fatalf("no route %s", name)
	return pipeline.RouteStatus{}
}

// TestSpill: what does not fit into memory is on disk alone, another route does not notice, and all of it comes, in order.
func TestSpill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, open := gate()
		other := &sink{}
		b, k := startOn(t, pipeline.Config{}, pipeline.Route{Sinks: to(s), Capacity: 4, Disk: 1 << 20, Batch: pipeline.Batch{Size: 1}},
			pipeline.Route{Sinks: to(nil, other)[1:]})
		b.admit(updates(t, 1, 20)...)
		pass(time.Second)
		perObject(t, other.got(), 1, 20)
		if s := b.statusOf("route0"); s.Owed != 20 || s.OnDisk != 0 {
			t.Errorf("before the cut: %+v", s)
		}
		k.cut(b)
		first := b.statusOf("route0")
		if first.Owed != 20 || first.OnDisk != 16 || b.value("queue_on_disk", "route0") != 16 || b.value("queue_disk_bytes", "route0") != 20*entryBytes {
			t.Errorf("after the cut: %+v, %v bytes", first, b.value("queue_disk_bytes", "route0"))
		}
		b.balanced("route0")
		pass(time.Minute)
		if s := b.statusOf("route0"); !s.Oldest.Equal(first.Oldest) || time.Since(s.Oldest) < time.Minute {
			t.Errorf("the oldest is %v old, it was %v before", time.Since(s.Oldest), first.Oldest)
		}
		b.admit(updates(t, 21, 25)...) // behind what is on disk
		open()
		b.drain()
		perObject(t, s.got(), 1, 25)
		b.balanced("route0")
		k.cut(b)
		if n := len(k.disk["route0"]); n != 0 || b.value("queue_on_disk", "route0") != 0 {
			t.Errorf("%d on disk still", n)
		}
	})
}

// TestSpillDuringACut: what came, was folded, or is gone since a cut was made is not on disk with that cut, and nothing that is gone is
// read back.
func TestSpillDuringACut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, open := gate()
		b, k := startOn(t, pipeline.Config{InFlight: 2 * entryBytes}, pipeline.Route{Sinks: to(s), Capacity: 1, Disk: 1 << 20, Batch: pipeline.Batch{Size: 1}})
		b.admit(delta(t, event.Added, "x", 0, 1), delta(t, event.Updated, "a", 1, 2), delta(t, event.Updated, "a", 2, 3), delta(t, event.Updated, "b", 1, 4))
		cut := b.Dirty()
		b.admit(delta(t, event.Updated, "a", 3, 5), delta(t, event.Updated, "c", 1, 6)) // folded with two that the cut has; and new
		k.write(t, cut)
		b.Saved(k.weigh)
		if s := b.statusOf("route0"); s.Owed != 4 || s.OnDisk != 1 {
			t.Errorf("%+v, want b alone on disk", s)
		}
		open()
		b.drain()
		equal(t, "sink", s.got(), "added x@1", "updated a@5", "updated b@4", "updated c@6")
		b.balanced("route0")
		k.cut(b)
		if n := len(k.disk["route0"]); n != 0 {
			t.Errorf("%d on disk still", n)
		}
	})
}

// TestSpillBeyondTheDisk: when the disk has no room for more, or does not take it, overflow decides.
func TestSpillBeyondTheDisk(t *testing.T) {
	type limits struct {
		disk, all, inFlight int64
		saved               bool
	}
	for name, limit := range map[string]limits{
		"of the route":  {disk: 8 * entryBytes, saved: true},
		"of all routes": {disk: 1 << 20, all: 8 * entryBytes, saved: true},
		"too slow":      {disk: 1 << 20, inFlight: 4 * entryBytes},
	} {
		for _, overflow := range []pipeline.Overflow{pipeline.Fold, pipeline.DropOldest, pipeline.Block} {
			t.Run(fmt.Sprint(name, overflow), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s, open := gate()
					b, k := startOn(t, pipeline.Config{MaxDisk: limit.all, InFlight: limit.inFlight},
						pipeline.Route{Sinks: to(s), Capacity: 4, Disk: limit.disk, Overflow: overflow, Batch: pipeline.Batch{Size: 1}})
					n := 0
					for _, d := range updates(t, 1, 100) {
						ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
						commit, err := b.Admit(ctx, d)
						cancel()
						if overflow == pipeline.Block && errors.Is(err, context.DeadlineExceeded) {
							break
						} else if err != nil {
							t.Fatal(err)
						}
						commit()
						if n++; limit.saved {
							k.cut(b)
						}
						synctest.Wait() // what was dropped makes room in the head
					}
					most := 4 + 8 + 5 + 1
					if owed := b.Owed("route0"); owed > most || owed < 8 {
						t.Errorf("%d owed, at most %d", owed, most)
					}
					if !limit.saved && k.soon == 0 {
						t.Error("nobody asked for a cut")
					}
					b.balanced("route0")
					open()
					b.drain()
					b.balanced("route0")
					got := s.got()
					if overflow == pipeline.Block {
						perObject(t, got, 1, n)
					} else if last := only(got, "a@"); last[len(last)-1] != "updated a@100" {
						t.Errorf("got %q", got)
					}
					if ended := b.value("route_deltas_total", "route0", metrics.Delivered); ended != float64(len(got)) {
						t.Errorf("%v delivered, got %d", ended, len(got))
					}
				})
			})
		}
	}
}

// TestSpilledLatest: what is read back is folded with what waits: it was never attempted.
func TestSpilledLatest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, open := gate()
		b, k := startOn(t, pipeline.Config{}, pipeline.Route{Sinks: to(s), Capacity: 6, Disk: 1 << 20, Deliver: pipeline.Latest, Batch: pipeline.Batch{Size: 1}})
		for v := 1; v <= 10; v++ { // more objects than the head has room for
			b.admit(delta(t, event.Updated, fmt.Sprint("x", v), 0, v))
		}
		k.cut(b)
		for round := range 10 {
			b.admit(updates(t, 100+5*round, 104+5*round)...)
			k.cut(b)
		}
		if s := b.statusOf("route0"); s.OnDisk != 54 {
			t.Errorf("%+v", s)
		}
		open()
		b.drain()
		got := s.got()
		// What comes between two cuts is folded before it goes to disk. Whether what is read back is folded too depends on who is faster.
		if a := only(got, " a@"); len(a) > 10 || a[len(a)-1] != "updated a@145" {
			t.Errorf("got %q", a)
		}
		b.balanced("route0")
	})
}

// TestUnreadableDisk: what cannot be read back is tried again.
func TestUnreadableDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, open := gate()
		b, k := startOn(t, pipeline.Config{}, pipeline.Route{Sinks: to(s), Capacity: 2, Disk: 1 << 20, Batch: pipeline.Batch{Size: 1}})
		b.admit(updates(t, 1, 12)...)
		k.cut(b)
		k.mu.Lock() // nothing can be read
		k.failing = true
		k.mu.Unlock()
		open()
		pass(time.Minute)
		if got := s.got(); len(got) != 2 || b.value("route_errors_total", "route0", "read_back") < 10 {
			t.Errorf("got %q", got)
		}
		k.mu.Lock()
		k.failing = false
		k.mu.Unlock()
		b.drain()
		perObject(t, s.got(), 1, 12)
	})
}

// TestSecretsStayInMemory: the disk has no more of a Secret than its identity, so nothing of it is on disk alone.
func TestSecretsStayInMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, open := gate()
		b, k := startOn(t, pipeline.Config{}, pipeline.Route{Sinks: to(s), Capacity: 2, Disk: 1 << 20, Batch: pipeline.Batch{Size: 1}})
		secrets := &event.Resource{Cluster: "test", Kind: "Secret"}
		secrets.Version, secrets.Resource = "v1", "secrets"
		for v := range 6 {
			o, err := event.ParseObject(secrets, fmt.Sprintf(`{"metadata":{"name":"a","uid":"u","resourceVersion":"%d"},"data":{"k":"c2VjcmV0"}}`, v+1))
			if err != nil {
				t.Fatal(err)
			}
			b.admit(&event.Delta{Source: "pods", Op: event.Updated, New: o, Seen: time.Now()})
		}
		k.cut(b)
		if s := b.statusOf("route0"); s.Owed != 6 || s.OnDisk != 0 {
			t.Errorf("%+v", s)
		}
		open()
		b.drain()
		for _, e := range s.events {
			if !strings.Contains(string(e.Data), "c2VjcmV0") {
				t.Errorf("got %s", e.Data)
			}
		}
	})
}

// TestSpilledUnderAnotherName: what a route owes on disk alone passes to the one that takes over, whatever its name is now and whether
// it is new, renamed, or at work and inherits; before, between and behind it comes what happens meanwhile.
func TestSpilledUnderAnotherName(t *testing.T) {
	for name, test := range map[string]struct{ atWork, removed bool }{
		"renamed": {}, "inherited by a new one": {removed: true}, "inherited by one at work": {atWork: true, removed: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				down, s := &sink{refuse: func(event.Event) error { return errDown }}, &sink{}
				bounded := func(name, version string, to *sink) pipeline.Route {
					r := routeOf(name, version, to)
					r.Sinks[0].Version = version
					r.Capacity, r.Disk, r.Batch = 3, 1<<20, pipeline.Batch{Size: 1}
					return r
				}
				old, heir := bounded("old", "1", down), bounded("heir", "1", down)
				k := &flakyDisk{disk: disk{}}
				b := openAs(t, pipeline.Config{Store: k}, old)
				k.before = func() { k.cut(b) }
				b.Start(t.Context())
				b.admit(updates(t, 1, 20)...)
				pass(time.Second)
				k.cut(b)
				routes, last := []pipeline.Route{}, 20
				if test.atWork {
					routes = append(routes, heir)
				}
				if test.removed {
					b.exchange(nil, routes...)
				}
				if test.atWork {
					b.admit(updates(t, 21, 40)...)
					last = 40
				}
				pass(time.Second)
				k.cut(b)

				heir = bounded("heir", "2", s)
				heir.Was, heir.Renew = "old", test.removed
				change, err := b.Prepare([]pipeline.Route{heir})
				if err != nil {
					t.Fatal(err)
				}
				if test.removed {
					if err := change.Inherit("heir", "old", k.debt("old"), checkpoint.Debt{}); err != nil {
						t.Fatal(err)
					}
				}
				change.Swap()
				b.admit(updates(t, last+1, last+10)...)
				k.cut(b)
				change.Finish(t.Context())
				b.admit(updates(t, last+11, last+20)...)
				pass(time.Hour)
				perObject(t, s.got(), 1, last+20)
				b.balanced("heir")
				k.cut(b)
				if n := len(k.disk["heir"]) + len(k.disk["old"]); n != 0 {
					t.Errorf("%d on disk still", n)
				}
			})
		})
	}
}

// What came for a changed route before it took over, and went to the disk, is not passed by what came after it.
func TestSpilledBeforeTakeOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &flakyDisk{disk: disk{}}
		s, open := gate()
		route := func(version string) pipeline.Route {
			return pipeline.Route{Name: "r", Version: version, Sources: []string{"pods"}, Ops: event.Ops(), Capacity: 2, Disk: 1 << 30, Sinks: to(s)}
		}
		b := openAs(t, pipeline.Config{Store: d}, route("1"))
		b.Start(t.Context())
		version := 0
		admit := func(n int) {
			for range n {
				version++
				b.admit(delta(t, event.Updated, "x", version, version+1))
			}
		}
		admit(1)
		pass(time.Second)
		change, err := b.Prepare([]pipeline.Route{route("2")})
		if err != nil {
			t.Fatal(err)
		}
		change.Swap()
		admit(4)
		d.cut(b)
		admit(1)
		open()
		change.Finish(t.Context())
		b.drain()
		var got []string
		for _, e := range s.events {
			got = append(got, e.K8sResourceVersion)
		}
		if want := []string{"2", "3", "4", "5", "6", "7"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}
