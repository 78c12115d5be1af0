package pipeline_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltarouter/deltarouter/internal/pipeline"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/filters"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// downstream returns targets that are routes.
func downstream(routes ...string) (named []spec.NamedSink) {
	for _, name := range routes {
		named = append(named, spec.NamedSink{Name: "to " + name, Version: "1", Route: name})
	}
	return named
}

// downstreamRoute returns a route that other routes deliver to.
func downstreamRoute(name string, sinks ...spec.NamedSink) spec.Settings {
	return spec.Settings{Name: name, Downstream: true, Sinks: sinks}
}

// out returns a sink with a name.
func out(name string, s plugins.Sink) spec.NamedSink {
	return spec.NamedSink{Name: name, Version: "1", Sink: s}
}

// emittingHandler returns a handler that makes n events of each delta, with its event as data. The
// type shows the path: the names of the routes that made an event of it, and its number in each.
func emittingHandler(name string, n int) handlerFunc {
	return handleEach(func(d *event.Delta) (result plugins.Result) {
		way := name
		if d.Event != nil {
			way = d.Event.Type + " " + name
		}
		for i := range n {
			result.Events = append(result.Events, plugins.Emit{Type: fmt.Sprint(way, i), Subject: "of " + name, Data: event.Payload(d)})
		}
		return result
	})
}

// types lists the events of a sink: type name@resourceVersion.
func (s *recordingSink) types() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := []string{}
	for _, e := range s.events {
		list = append(list, e.Type+" "+e.Of.Key().Name+"@"+e.K8sResourceVersion)
	}
	return list
}

// A route without a handler passes its events on: data, type and subject, with its own id and name.
func TestChainPassesOn(t *testing.T) {
	// Guarantee: chain-delivery
	synctest.Test(t, func(t *testing.T) {
		first, last := &recordingSink{}, &recordingSink{}
		b := start(t,
			spec.Settings{Name: "a", Handler: emittingHandler("a", 1), Sinks: append(downstream("b"), out("first", first))},
			downstreamRoute("b", out("last", last)))
		d := delta(t, event.Updated, "x", 1, 2)
		d.Stale = true
		b.admit(d)
		pass(time.Second)
		one, two := first.events[0], last.events[0]
		if two.Route != "b" || two.ID == one.ID || two.ID != event.New(two.Of, "b", 0, nil).ID {
			t.Errorf("got %+v", two)
		}
		if two.Type != "a0" || two.Subject != "of a" || string(two.Data) != string(one.Data) || two.Source != one.Source || !two.Time.Equal(one.Time) {
			t.Errorf("got %+v of %+v", two, one)
		}
		of := two.Of
		if of.Op != event.Updated || of.Old != d.Old || of.New != d.New || !of.Stale || of.Source != "pods" {
			t.Errorf("the delta is %+v", of)
		}
		if e := of.Event; e.ID != one.ID || e.Route != "a" || e.Type != "a0" || e.Of != nil {
			t.Errorf("its event is %+v", e)
		}
		if d.Event != nil {
			t.Error("the delta of the source was changed")
		}
		for _, route := range []string{"a", "b"} {
			b.balanced(route)
		}
		if got := b.value("route_events_total", "a", "to b", "delivered"); got != 1 {
			t.Errorf("%v events delivered to the route, want 1", got)
		}
	})
}

// ways counts the events of a sink by type. Each event comes once, and on each path the events of
// an object come in order.
func (s *recordingSink) ways(t *testing.T) map[string]int {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	ids, ways, last := map[string]bool{}, map[string]int{}, map[string]int{}
	for _, e := range s.events {
		if ids[e.ID] {
			t.Errorf("%s of %s came twice", e.Type, e.Of)
		}
		ids[e.ID] = true
		ways[e.Type]++
		version, err := strconv.Atoi(e.K8sResourceVersion)
		if way := e.Type + " " + e.Of.Key().Name; err != nil || version <= last[way] {
			t.Errorf("%s: version %d came after %d", way, version, last[way])
		} else {
			last[way] = version
		}
	}
	return ways
}

// An event takes every path once: to several routes, along a chain, along two paths to one route.
func TestChainShapes(t *testing.T) {
	// Guarantee: chain-delivery
	synctest.Test(t, func(t *testing.T) {
		took := map[string]*recordingSink{}
		at := func(name string) spec.NamedSink {
			took[name] = &recordingSink{}
			return out(name, took[name])
		}
		odd := filters.Func(func(_ context.Context, d *event.Delta) (bool, error) { return d.Event.Type == "a1", nil })
		b := start(t,
			spec.Settings{Name: "a", Handler: emittingHandler("a", 2), Concurrency: 3, Sinks: append(downstream("b", "c"), at("a"))},
			spec.Settings{Name: "b", Downstream: true, Handler: emittingHandler("b", 1), Concurrency: 3, Sinks: append(downstream("d"), at("b"))},
			spec.Settings{Name: "c", Downstream: true, Handler: emittingHandler("c", 2), Concurrency: 3, Sinks: append(downstream("d"), at("c")), Filter: odd},
			spec.Settings{Name: "d", Downstream: true, Concurrency: 3, Sinks: append(downstream("e"), at("d"))},
			downstreamRoute("e", at("e")),
		)
		const n = 50
		for i := range n {
			b.admit(delta(t, event.Added, fmt.Sprint("x", i%7), 0, i+1))
		}
		b.drain()
		all := map[string]int{"a0 b0": n, "a1 b0": n, "a1 c0": n, "a1 c1": n}
		for name, want := range map[string]map[string]int{
			"a": {"a0": n, "a1": n}, "b": {"a0 b0": n, "a1 b0": n}, "c": {"a1 c0": n, "a1 c1": n}, "d": all, "e": all,
		} {
			if got := took[name].ways(t); !maps.Equal(got, want) {
				t.Errorf("%s took %v, want %v", name, got, want)
			}
			b.balanced(name)
		}
		if got := b.value("route_deltas_total", "c", "filtered"); got != n {
			t.Errorf("c filtered %v, want %d", got, n)
		}
	})
}

func TestChainWrongly(t *testing.T) {
	// Guarantee: chain-checked
	s := to(&recordingSink{})
	when := downstreamRoute("b", s...)
	when.When.Filter = filters.Func(func(context.Context, *event.Delta) (bool, error) { return true, nil })
	gone := downstreamRoute("b", s...)
	gone.Hold = time.Minute
	a := spec.Settings{Name: "a", Sinks: downstream("b")}
	for want, routes := range map[string][]spec.Settings{
		`route "a" delivers to route "b", which does not exist`:                                 {a},
		`route "a" delivers to route "b", which does not exist or gets its deltas from sources`: {a, {Name: "b", Sinks: s}},
		`route "b" delivers to itself (b → c → b)`:                                              {a, downstreamRoute("b", downstream("c")...), downstreamRoute("c", downstream("b")...)},
		`route "b" delivers to itself (b → b)`:                                                  {a, downstreamRoute("b", downstream("b")...)},
		`route "c" delivers to itself (c → d → e → c)`:                                          {a, downstreamRoute("b", downstream("c")...), downstreamRoute("c", downstream("d")...), downstreamRoute("d", append(downstream("e"), s...)...), downstreamRoute("e", downstream("c")...)},
		`route "b" has upstream routes and a condition`:                                         {a, when},
		`route "b" has upstream routes and a condition (when, for)`:                             {a, gone},
	} {
		if _, err := pipeline.New(pipeline.Config{Routes: routes}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	diamond := []spec.Settings{{Name: "a", Sinks: downstream("b", "c")}, downstreamRoute("b", downstream("d")...), downstreamRoute("c", downstream("d")...), downstreamRoute("d", s...)}
	p, err := pipeline.New(pipeline.Config{Routes: diamond})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.AdmitTo(t.Context(), "b", delta(t, event.Sync, "x", 0, 1)); err == nil {
		t.Error("a downstream route takes deltas of a source")
	}
	if p.Takes("pods", event.Sync, false) {
		t.Error("a downstream route takes deltas of a source")
	}
}

// A downstream route takes events of its ops that its filter matches. A filter that fails affects
// that route only.
func TestChainFilter(t *testing.T) {
	// Guarantee: chain-delivery
	synctest.Test(t, func(t *testing.T) {
		took := &recordingSink{}
		r := downstreamRoute("b", out("out", took))
		r.Ops = []event.Op{event.Added, event.Updated}
		r.Filter = filters.Func(func(_ context.Context, d *event.Delta) (bool, error) {
			if d.Key().Name == "bad" {
				return false, errBad
			}
			return d.Key().Name != "unwanted", nil
		})
		b := start(t, spec.Settings{Name: "a", Sinks: downstream("b")}, r)
		b.admit(delta(t, event.Added, "x", 0, 1), delta(t, event.Added, "unwanted", 0, 2), delta(t, event.Added, "bad", 0, 3), delta(t, event.Deleted, "x", 1, 0))
		b.drain()
		equal(t, "sink", took.got(), "added x@1")
		equal(t, "dead letters", b.letters.got(), "bad@3 ")
		letter := b.letters.all[0]
		if letter.Route != "b" || !letter.Unseen || letter.Delta.Event == nil || letter.Delta.Event.Route != "a" {
			t.Errorf("the letter is %+v", letter)
		}
		for result, want := range map[string]float64{"matched": 2, "filtered": 1, "delivered": 1, "dead_lettered": 1} {
			if got := b.value("route_deltas_total", "b", result); got != want {
				t.Errorf("b %s: %v, want %v", result, got, want)
			}
		}
		if got := b.value("route_deltas_total", "a", "delivered"); got != 4 {
			t.Errorf("a delivered %v, want 4", got)
		}
		b.balanced("b")
	})
}

// Events of an upstream route are never coalesced, whatever the configuration of the route.
func TestChainNeverFolds(t *testing.T) {
	// Guarantee: chain-delivery
	synctest.Test(t, func(t *testing.T) {
		held, open := blockingSink()
		r := downstreamRoute("b", out("out", held))
		r.Deliver, r.Capacity = spec.Latest, 3
		b := start(t, spec.Settings{Name: "a", Sinks: downstream("b"), Handler: emittingHandler("a", 1), Overflow: spec.Block, Capacity: 100}, r)
		want := []string{}
		for i := range 20 {
			b.admit(delta(t, event.Updated, "x", i+1, i+2))
			want = append(want, fmt.Sprint("a0 x@", i+2))
		}
		pass(time.Minute)
		if n := b.Pending("b"); n != 3 {
			t.Errorf("b has %d pending, it has room for 3", n)
		}
		open()
		b.drain()
		equal(t, "sink", held.types(), want...)
	})
}

// A full route holds its upstream route back, which keeps its backlog, also on disk: no event is
// lost, and the order stays.
func TestChainIsFull(t *testing.T) {
	// Guarantee: chain-delivery
	synctest.Test(t, func(t *testing.T) {
		var down atomic.Bool
		down.Store(true)
		took, beside := &recordingSink{refuse: func(event.Event) error {
			if down.Load() {
				return errDown
			}
			return nil
		}}, &recordingSink{}
		k := &flakyStore{fakeStore: fakeStore{}}
		r := downstreamRoute("b", out("out", took))
		r.Capacity, r.Retry = 5, spec.Retry{Max: time.Second}
		b := openAs(t, pipeline.Config{Store: k},
			spec.Settings{Name: "a", Sinks: downstream("b"), Overflow: spec.Block, Capacity: 10, Disk: 1 << 20, Concurrency: 2},
			spec.Settings{Name: "other", Sinks: []spec.NamedSink{out("beside", beside)}}, r)
		b.Start(t.Context())
		want := []string{}
		const n = 60
		for i := range n {
			b.admit(delta(t, event.Updated, "x", i+1, i+2))
			want = append(want, fmt.Sprint("updated x@", i+2))
		}
		for range 10 {
			pass(time.Second)
			k.cut(b)
		}
		equal(t, "the other route", beside.got(), want...)
		status := b.Status()
		if a := status[0]; a.Pending != n-5 || a.OnDisk < n-5-10 || a.OnDisk > n-5-5 || a.HeldBy != "b" || status[2].Pending != 5 {
			t.Errorf("got %+v", status)
		}
		down.Store(false)
		for range 10 {
			pass(time.Second)
			k.cut(b)
		}
		b.drain()
		equal(t, "sink", took.got(), want...)
		if a := b.Status()[0]; a.HeldBy != "" {
			t.Errorf("got %+v", a)
		}
		for _, route := range []string{"a", "b", "other"} {
			b.balanced(route)
		}
		k.cut(b)
		for route, pending := range k.fakeStore {
			if len(pending) > 0 {
				t.Errorf("on disk %s has %d pending", route, len(pending))
			}
		}
	})
}

// While one downstream route is blocked and full, a route continues with its other targets.
func TestChainStandsStill(t *testing.T) {
	// Guarantee: chain-delivery
	synctest.Test(t, func(t *testing.T) {
		bad := &recordingSink{refuse: func(event.Event) error { return plugins.Reject(errBad) }}
		beside, last := &recordingSink{}, &recordingSink{}
		r := downstreamRoute("b", out("bad", bad))
		r.OnFailure, r.Capacity, r.Overflow = spec.Pause, 1, spec.Block
		a := spec.Settings{Name: "a", Sinks: append(downstream("b", "c"), out("beside", beside)), Batch: spec.Batch{Size: 1}}
		b := start(t, a, r, downstreamRoute("c", out("last", last)))
		want := []string{}
		for i := range 20 {
			b.admit(delta(t, event.Added, fmt.Sprint("x", i), 0, i+1))
			want = append(want, fmt.Sprintf("added x%d@%d", i, i+1))
		}
		pass(3 * time.Second) // one worker, and it waits for b once
		got, there := beside.got(), last.got()
		slices.Sort(got)
		slices.Sort(there)
		slices.Sort(want)
		equal(t, "the other sink", got, want...)
		equal(t, "the other route", there, want...)
		status := b.Status()
		if status[0].Pending != 19 || status[0].HeldBy != "b" || status[1].Pending != 1 || status[1].Paused == "" {
			t.Errorf("got %+v", status)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		if err := b.Drain(ctx); err == nil || !strings.Contains(err.Error(), `route "a" 19`) || time.Since(began) > time.Second {
			t.Errorf("drained after %v: %v", time.Since(began), err)
		}
	})
}

// A drain sees a delta that was handed from one route to another, whichever route it visits first.
func TestChainDrains(t *testing.T) {
	// Guarantee: chain-delivery
	took := &recordingSink{}
	routes := []spec.Settings{downstreamRoute("c", out("out", took)), downstreamRoute("b", downstream("c")...), {Name: "a", Sinks: downstream("b")}}
	for i := range routes {
		routes[i].Batch.Size = 1
	}
	b := start(t, routes...)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	const rounds = 3000
	for i := range rounds {
		b.admit(delta(t, event.Added, "x", 0, i+1))
		if err := b.WaitDelivered(ctx); err != nil {
			t.Fatal(err)
		}
		if n := len(took.got()); n != i+1 {
			t.Fatalf("nothing is pending, but %d of %d came", n, i+1)
		}
	}
	for _, route := range []string{"a", "b", "c"} {
		b.balanced(route)
	}
}

// While its downstream route has no room, a route begins no delta that can still be coalesced.
func TestChainFoldsBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		held, open := blockingSink()
		r := downstreamRoute("b", out("out", held))
		r.Capacity = 1
		b := start(t, spec.Settings{Name: "a", Sinks: downstream("b"), Deliver: spec.Latest, Batch: spec.Batch{Size: 1}}, r)
		b.admit(delta(t, event.Added, "first", 0, 1), delta(t, event.Added, "second", 0, 2))
		pass(2500 * time.Millisecond)
		const n = 20
		for round := range 3 {
			for i := range n {
				b.admit(delta(t, event.Updated, fmt.Sprint("x", i), 3+round, 4+round))
			}
			pass(100 * time.Millisecond)
		}
		if pending := b.Pending("a"); pending > n+3 {
			t.Errorf("a has %d pending", pending)
		}
		open()
		b.drain()
		got := held.got()
		for i := range n {
			if !slices.Contains(got, fmt.Sprintf("updated x%d@6", i)) {
				t.Errorf("x%d did not come as it is now", i)
			}
		}
		if len(got) > n+4 {
			t.Errorf("got %q", got)
		}
		b.balanced("a")
	})
}

// A source is not blocked by a route that waits for a list of the same source, not even behind an
// upstream route.
func TestChainWaitsForItsSource(t *testing.T) {
	// Guarantee: chain-no-deadlock
	synctest.Test(t, func(t *testing.T) {
		took, ready := &recordingSink{}, make(chan struct{})
		r := downstreamRoute("c", out("out", took))
		r.Ready, r.Capacity, r.Overflow = ready, 1, spec.Block
		between := downstreamRoute("b", downstream("c")...)
		between.Capacity, between.Overflow = 1, spec.Block
		b := start(t, spec.Settings{Name: "a", Sinks: downstream("b"), Overflow: spec.Block, Capacity: 1}, between, r)
		for i := range 10 {
			b.admit(delta(t, event.Added, fmt.Sprint("x", i), 0, i+1))
		}
		pass(time.Minute)
		if a := b.Status(); a[0].Pending+a[1].Pending+a[2].Pending != 10 || a[2].Pending != 1 || !a[2].Waiting {
			t.Errorf("got %+v", a)
		}
		close(ready)
		b.drain()
		if n := len(took.got()); n != 10 {
			t.Errorf("%d came", n)
		}
	})
}

// A route that is changed while it waits for room in another one does not delay the reload, and its
// successor continues.
func TestChainReloadIsPrompt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		held, open := blockingSink()
		upstream := spec.Settings{Name: "a", Version: "1", Sources: []string{"pods"}, Ops: event.Ops(), Sinks: downstream("b"), Batch: spec.Batch{Size: 4}}
		full := downstreamRoute("b", out("out", held))
		full.Version, full.Capacity, full.Batch = "1", 1, spec.Batch{Size: 1}
		b := openAs(t, pipeline.Config{Store: fakeStore{}}, upstream, full)
		b.Start(t.Context())
		for i := range 8 {
			b.admit(delta(t, event.Added, fmt.Sprint("x", i), 0, i+1))
		}
		pass(100 * time.Millisecond)
		began := time.Now()
		upstream.Version, full.Ops = "2", event.Ops()
		b.exchange(nil, upstream, full)
		if took := time.Since(began); took > 0 {
			t.Errorf("it took %v", took)
		}
		open()
		b.drain()
		if n := len(held.got()); n != 8 {
			t.Errorf("%d came", n)
		}
	})
}

// A drain does not wait for deltas behind a blocked route, at any distance, but for all other
// deltas of its upstream routes.
func TestChainDrainsAround(t *testing.T) {
	// Guarantee: chain-delivery
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		beside := &recordingSink{refuse: func(event.Event) error {
			if time.Since(began) < 20*time.Second {
				return errDown
			}
			return nil
		}}
		unready := downstreamRoute("c", out("out", &recordingSink{}))
		unready.Ready, unready.Capacity, unready.Overflow = make(chan struct{}), 1, spec.Block
		between := downstreamRoute("b", downstream("c")...)
		between.Capacity, between.Overflow = 2, spec.Block
		b := start(t, spec.Settings{Name: "a", Sinks: append(downstream("b"), out("beside", beside)), Retry: spec.Retry{Max: time.Second}}, between, unready)
		for i := range 10 {
			b.admit(delta(t, event.Added, fmt.Sprint("x", i), 0, i+1))
		}
		pass(10 * time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := b.Drain(ctx); err == nil || !strings.Contains(err.Error(), `route "a" 7, route "b" 2, route "c" 1`) {
			t.Errorf("drained: %v", err)
		}
		if n, took := len(beside.got()), time.Since(began); n != 10 || took < 20*time.Second || took > time.Minute {
			t.Errorf("%d came to the other sink in %v", n, took)
		}
	})
}
