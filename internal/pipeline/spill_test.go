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

	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/internal/pipeline"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// startOn starts a pipeline with a disk.
func startOn(t *testing.T, cfg pipeline.Config, routes ...spec.Settings) (*harness, *flakyStore) {
	t.Helper()
	k := &flakyStore{fakeStore: fakeStore{}}
	cfg.Store = k
	b := openAs(t, cfg, routes...)
	b.Start(t.Context())
	return b, k
}

// updates returns versions from to to of objects a to e, by turns.
func updates(t *testing.T, from, to int) (deltas []*event.Delta) {
	t.Helper()
	for v := from; v <= to; v++ {
		deltas = append(deltas, delta(t, event.Updated, string(rune('a'+v%5)), max(1, v-5), v))
	}
	return deltas
}

// perObject checks that the events of each object are these versions, in order.
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

func (b *harness) statusOf(name string) pipeline.Status {
	b.t.Helper()
	for _, s := range b.Status() {
		if s.Name == name {
			return s
		}
	}
	b.t.Fatalf("no route %s", name)
	return pipeline.Status{}
}

// TestSpill: deltas that do not fit into memory are only on disk, without an effect on another
// route, and all of them are delivered in order.
func TestSpill(t *testing.T) {
	// Guarantee: backlog-on-disk
	synctest.Test(t, func(t *testing.T) {
		s, open := blockingSink()
		other := &recordingSink{}
		b, k := startOn(t, pipeline.Config{}, spec.Settings{Sinks: to(s), Capacity: 4, Disk: 1 << 20, Batch: spec.Batch{Size: 1}},
			spec.Settings{Sinks: to(nil, other)[1:]})
		b.admit(updates(t, 1, 20)...)
		pass(time.Second)
		perObject(t, other.got(), 1, 20)
		if s := b.statusOf("route0"); s.Pending != 20 || s.OnDisk != 0 {
			t.Errorf("before the cut: %+v", s)
		}
		k.cut(b)
		first := b.statusOf("route0")
		if first.Pending != 20 || first.OnDisk != 16 || b.value("route_queue_disk_deltas", "route0") != 16 || b.value("route_queue_disk_bytes", "route0") != 20*entryBytes {
			t.Errorf("after the cut: %+v, %v bytes", first, b.value("route_queue_disk_bytes", "route0"))
		}
		b.balanced("route0")
		pass(time.Minute)
		if s := b.statusOf("route0"); !s.Oldest.Equal(first.Oldest) || time.Since(s.Oldest) < time.Minute {
			t.Errorf("the oldest is %v old, it was %v before", time.Since(s.Oldest), first.Oldest)
		}
		b.admit(updates(t, 21, 25)...) // behind the deltas on disk
		open()
		b.drain()
		perObject(t, s.got(), 1, 25)
		b.balanced("route0")
		k.cut(b)
		if n := len(k.fakeStore["route0"]); n != 0 || b.value("route_queue_disk_deltas", "route0") != 0 {
			t.Errorf("%d on disk still", n)
		}
	})
}

// TestSpillDuringACut: deltas that were added, coalesced or removed after a cut was made are not on
// disk with that cut, and no removed delta is read back.
func TestSpillDuringACut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, open := blockingSink()
		b, k := startOn(t, pipeline.Config{InFlight: 2 * entryBytes}, spec.Settings{Sinks: to(s), Capacity: 1, Disk: 1 << 20, Batch: spec.Batch{Size: 1}})
		b.admit(delta(t, event.Added, "x", 0, 1), delta(t, event.Updated, "a", 1, 2), delta(t, event.Updated, "a", 2, 3), delta(t, event.Updated, "b", 1, 4))
		cut := b.Dirty()
		// coalesced with two that are in the cut; and a new one
		b.admit(delta(t, event.Updated, "a", 3, 5), delta(t, event.Updated, "c", 1, 6))
		k.write(t, cut)
		b.Saved(k.weigh)
		if s := b.statusOf("route0"); s.Pending != 4 || s.OnDisk != 1 {
			t.Errorf("%+v, want b alone on disk", s)
		}
		open()
		b.drain()
		equal(t, "sink", s.got(), "added x@1", "updated a@5", "updated b@4", "updated c@6")
		b.balanced("route0")
		k.cut(b)
		if n := len(k.fakeStore["route0"]); n != 0 {
			t.Errorf("%d on disk still", n)
		}
	})
}

// TestSpillBeyondTheDisk: if the disk is full, or fails, the overflow policy applies.
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
		for _, overflow := range []spec.Overflow{spec.Coalesce, spec.DropOldest, spec.Block} {
			t.Run(fmt.Sprint(name, overflow), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s, open := blockingSink()
					b, k := startOn(t, pipeline.Config{MaxDisk: limit.all, InFlight: limit.inFlight},
						spec.Settings{Sinks: to(s), Capacity: 4, Disk: limit.disk, Overflow: overflow, Batch: spec.Batch{Size: 1}})
					n := 0
					for _, d := range updates(t, 1, 100) {
						ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
						commit, err := b.Admit(ctx, d)
						cancel()
						if overflow == spec.Block && errors.Is(err, context.DeadlineExceeded) {
							break
						} else if err != nil {
							t.Fatal(err)
						}
						commit.Commit()
						if n++; limit.saved {
							k.cut(b)
						}
						synctest.Wait() // dropped deltas make room in the head
					}
					most := 4 + 8 + 5 + 1
					if pending := b.Pending("route0"); pending > most || pending < 8 {
						t.Errorf("%d pending, at most %d", pending, most)
					}
					if !limit.saved && k.soon == 0 {
						t.Error("no cut was requested")
					}
					b.balanced("route0")
					open()
					b.drain()
					b.balanced("route0")
					got := s.got()
					if overflow == spec.Block {
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

// TestSpillBeforeFolding: while the disk is behind, new deltas wait for it, and are not coalesced.
// Once the disk has written nothing for five seconds, the overflow policy applies, without another
// wait, until the disk has caught up.
func TestSpillBeforeFolding(t *testing.T) {
	// Guarantee: backlog-on-disk
	for _, overflow := range []spec.Overflow{spec.Coalesce, spec.DropOldest} {
		t.Run(fmt.Sprint(overflow), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, open := blockingSink()
				b, k := startOn(t, pipeline.Config{InFlight: 4 * entryBytes},
					spec.Settings{Sinks: to(s), Capacity: 4, Disk: 1 << 20, Overflow: overflow, Batch: spec.Batch{Size: 1}})
				lost := func() float64 {
					return b.value("route_deltas_total", "route0", metrics.Coalesced) + b.value("route_deltas_total", "route0", metrics.Dropped)
				}
				cuts, end := context.WithCancel(t.Context())
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					for cuts.Err() == nil {
						time.Sleep(time.Second)
						k.cut(b)
					}
				}()
				b.admit(updates(t, 1, 100)...)
				if n := lost(); n != 0 || b.Pending("route0") != 100 {
					t.Errorf("%v of 100 coalesced or dropped, although the disk had room", n)
				}
				end()
				<-ended
				began := time.Now()
				b.admit(updates(t, 101, 200)...)
				if waited := time.Since(began); waited != 5*time.Second || lost() == 0 {
					t.Errorf("waited %v for a disk that takes nothing, %v coalesced or dropped", waited, lost())
				}
				k.cut(b)
				before := lost()
				b.admit(updates(t, 201, 202)...)
				if lost() != before {
					t.Error("coalesced or dropped although the disk has caught up")
				}
				open()
				b.drain()
				b.balanced("route0")
			})
		})
	}
}

// TestSpilledLatest: a delta that is read back is coalesced with pending ones: it was never
// attempted.
func TestSpilledLatest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, open := blockingSink()
		b, k := startOn(t, pipeline.Config{}, spec.Settings{Sinks: to(s), Capacity: 6, Disk: 1 << 20, Deliver: spec.Latest, Batch: spec.Batch{Size: 1}})
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
		// Deltas between two cuts are coalesced before they go to disk. Whether deltas that are
		// read back are coalesced, too, depends on timing.
		if a := only(got, " a@"); len(a) > 10 || a[len(a)-1] != "updated a@145" {
			t.Errorf("got %q", a)
		}
		b.balanced("route0")
	})
}

// TestUnreadableDisk: a failed read is retried.
func TestUnreadableDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, open := blockingSink()
		b, k := startOn(t, pipeline.Config{}, spec.Settings{Sinks: to(s), Capacity: 2, Disk: 1 << 20, Batch: spec.Batch{Size: 1}})
		b.admit(updates(t, 1, 12)...)
		k.cut(b)
		k.mu.Lock() // reads fail
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

// TestSecretsStayInMemory: the disk has only the identity of a Secret, so no delta of it is only on
// disk.
func TestSecretsStayInMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, open := blockingSink()
		b, k := startOn(t, pipeline.Config{}, spec.Settings{Sinks: to(s), Capacity: 2, Disk: 1 << 20, Batch: spec.Batch{Size: 1}})
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
		if s := b.statusOf("route0"); s.Pending != 6 || s.OnDisk != 0 {
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

// TestSpilledUnderAnotherName: a renamed route continues with its deltas that are only on disk,
// even if it was removed in between; new deltas follow them.
func TestSpilledUnderAnotherName(t *testing.T) {
	for name, removed := range map[string]bool{"renamed": false, "back": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				down, s := &recordingSink{refuse: func(event.Event) error { return errDown }}, &recordingSink{}
				bounded := func(name, version string, to *recordingSink) spec.Settings {
					r := routeOf(name, version, to)
					r.Sinks[0].Version = version
					r.Capacity, r.Disk, r.Batch = 3, 1<<20, spec.Batch{Size: 1}
					return r
				}
				k := &flakyStore{fakeStore: fakeStore{}}
				b := openAs(t, pipeline.Config{Store: k}, bounded("old", "1", down))
				b.Start(t.Context())
				b.admit(updates(t, 1, 20)...)
				pass(time.Second)
				k.cut(b)
				if removed {
					b.exchange(nil)
				}
				pass(time.Second)
				k.cut(b)

				renamed := bounded("new", "2", s)
				renamed.ID = "old"
				change, err := b.Prepare([]spec.Settings{renamed})
				if err != nil {
					t.Fatal(err)
				}
				if removed {
					if err := change.Restore("old", nil, k.backlog("old")); err != nil {
						t.Fatal(err)
					}
				}
				change.Swap()
				b.admit(updates(t, 21, 30)...)
				k.cut(b)
				change.Finish(t.Context())
				b.admit(updates(t, 31, 40)...)
				pass(time.Hour)
				perObject(t, s.got(), 1, 40)
				b.balanced("new")
				k.cut(b)
				if n := len(k.fakeStore["new"]) + len(k.fakeStore["old"]); n != 0 {
					t.Errorf("%d on disk still", n)
				}
			})
		})
	}
}

// Deltas of a changed route that were spilled before it took over are not overtaken by later ones.
func TestSpilledBeforeTakeOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &flakyStore{fakeStore: fakeStore{}}
		s, open := blockingSink()
		route := func(version string) spec.Settings {
			return spec.Settings{Name: "r", Version: version, Sources: []string{"pods"}, Ops: event.Ops(), Capacity: 2, Disk: 1 << 30, Sinks: to(s)}
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
		change, err := b.Prepare([]spec.Settings{route("2")})
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
