package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/deltarouter/deltarouter/internal/pipeline"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/filters"
)

// chainReloadStep is one step: new deltas, time for them, and changes of the configuration.
type chainReloadStep struct {
	deltas, wait int
	changed      [3]bool // the version of a, b, c changes
	renamed      [3]bool // the name of a, b, c changes
	without      bool    // b is removed, and no route delivers to it
}

// chainReloadModel is a router whose routes a, b and c (a delivers to b and c, b to c) are added,
// removed and changed.
type chainReloadModel struct {
	t        *testing.T
	faults   *faults
	b        *harness
	store    *flakyStore
	versions [3]int
	names    [3]string
	without  bool
	took     map[string]*recordingSink
	sent     int
	want     map[string]map[string]bool
}

func (w *chainReloadModel) routes() (routes []spec.Settings) {
	a, b, c := w.names[0], w.names[1], w.names[2]
	to := func(what, name string) spec.NamedSink {
		return spec.NamedSink{Name: "to " + what, Version: "1", Route: name}
	}
	all := []spec.Settings{
		{Name: a, Handler: emittingHandler("a", 1), Capacity: 3, Disk: 1 << 30, Sinks: []spec.NamedSink{to("c", c), to("b", b)}},
		{Name: b, Downstream: true, Handler: emittingHandler("b", 1), Capacity: 2, Sinks: []spec.NamedSink{out("x", w.took["x"]), to("c", c)}},
		{Name: c, Downstream: true, Capacity: 2, Disk: 1 << 30, Sinks: []spec.NamedSink{out("y", w.took["y"])}},
	}
	for i, r := range all {
		if i == 1 && w.without {
			continue
		}
		if i == 0 && w.without {
			r.Sinks = r.Sinks[:1]
		}
		r.Version = fmt.Sprint(w.versions[i], w.names, w.without)
		if i > 0 { // its targets do not matter
			r.Version = fmt.Sprint(w.versions[i], w.names[i], w.names[2])
		}
		r.ID = r.Name[:1]
		r.Sources, r.Ops, r.Batch = []string{"pods"}, event.Ops(), spec.Batch{Size: 2}
		r.Retry = spec.Retry{Attempts: 1000, Max: time.Second}
		routes = append(routes, r)
	}
	return routes
}

func (w *chainReloadModel) admit(n int) {
	for range n {
		w.sent++
		d := delta(w.t, event.Updated, fmt.Sprint("x", w.sent%3), w.sent, w.sent+1)
		w.b.admit(d)
		what := " " + d.Key().Name + "@" + strconv.Itoa(w.sent+1)
		w.want["y"]["a0"+what] = true
		if !w.without {
			w.want["x"]["a0 b0"+what], w.want["y"]["a0 b0"+what] = true, true
		}
	}
}

// reload exchanges the routes while they work.
func (w *chainReloadModel) reload(step chainReloadStep) error {
	// no delta for b is pending at a any more, because a would no longer have the target
	if step.without != w.without {
		if err := w.quiet(); err != nil {
			return err
		}
	}
	w.without = step.without
	for i := range w.names {
		if step.changed[i] {
			w.versions[i]++
		}
		if step.renamed[i] {
			w.names[i] += "'"
		}
	}
	change, err := w.b.Prepare(w.routes())
	if err != nil {
		return err
	}
	for _, id := range change.New() { // a removed route returns
		if err := change.Restore(id, nil, w.store.backlog(id)); err != nil {
			return err
		}
	}
	end := w.b.Yield()
	change.Swap()
	end()
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		change.Finish(w.t.Context())
	}()
	w.admit(step.deltas)
	<-finished
	return nil
}

// quiet waits until a has no pending deltas, and the disk has that. Then only b has pending deltas,
// which go and return with it.
func (w *chainReloadModel) quiet() error {
	for range 1000 {
		pass(time.Second)
		w.store.cut(w.b)
		if w.b.Pending(w.names[0]) == 0 {
			return nil
		}
	}
	return errors.New("a does not come to an end")
}

func (w *chainReloadModel) check() (wrong error) {
	for name, s := range w.took {
		got := map[string]bool{}
		last := map[string]int{}
		for _, e := range s.events {
			way := e.Type + " " + e.Of.Key().Name
			what := way + "@" + e.K8sResourceVersion
			if got[what] {
				wrong = errors.Join(wrong, fmt.Errorf("%s took %s twice", name, what))
			}
			got[what] = true
			version, err := strconv.Atoi(e.K8sResourceVersion)
			if err != nil || version <= last[way] {
				wrong = errors.Join(wrong, fmt.Errorf("%s took %s after version %d", name, what, last[way]))
			}
			last[way] = version
		}
		if want := w.want[name]; !maps.Equal(got, want) {
			wrong = errors.Join(wrong, fmt.Errorf("%s took %d events of %d", name, len(got), len(want)))
		}
	}
	return wrong
}

func runChainReloads(t *testing.T, seed uint64, steps []chainReloadStep) (wrong error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &chainReloadModel{
			t: t, faults: &faults{r: rand.New(rand.NewPCG(seed, 2))}, store: &flakyStore{fakeStore: fakeStore{}}, names: [3]string{"a", "b", "c"},
			want: map[string]map[string]bool{"x": {}, "y": {}},
		}
		w.took = map[string]*recordingSink{"x": {refuse: w.faults.refuse, before: w.faults.sleep(time.Second)}, "y": {before: w.faults.sleep(2 * time.Second)}}
		w.b = openAs(t, pipeline.Config{Store: w.store}, w.routes()...)
		w.b.Start(t.Context())
		for _, step := range steps {
			w.admit(step.deltas)
			pass(time.Duration(step.wait) * 100 * time.Millisecond)
			if wrong = w.reload(step); wrong != nil {
				return
			}
		}
		if wrong = w.reload(chainReloadStep{}); wrong != nil { // b returns
			return
		}
		for range 1000 {
			pass(time.Second)
			w.store.cut(w.b)
		}
		w.b.drain()
		w.store.cut(w.b)
		wrong = w.check()
		for route, pending := range w.store.fakeStore {
			if len(pending) > 0 {
				wrong = errors.Join(wrong, fmt.Errorf("on disk %s has %d pending deltas", route, len(pending)))
			}
		}
	})
	return wrong
}

// TestChainReloads: upstream and downstream routes are changed, renamed, removed and added again in
// all combinations while they work. No event is lost or repeated, and the order stays.
func TestChainReloads(t *testing.T) {
	// Guarantee: chain-changes
	flags := func(rt *rapid.T, what string) (f [3]bool) {
		for i := range f {
			f[i] = rapid.IntRange(0, 2).Draw(rt, what) == 0
		}
		return f
	}
	step := rapid.Custom(func(rt *rapid.T) chainReloadStep {
		return chainReloadStep{
			deltas: rapid.IntRange(0, 8).Draw(rt, "deltas"), wait: rapid.SampledFrom([]int{0, 0, 1, 30}).Draw(rt, "wait"),
			changed: flags(rt, "changed"), renamed: flags(rt, "renamed"), without: rapid.IntRange(0, 3).Draw(rt, "without") == 0,
		}
	})
	rapid.Check(t, func(rt *rapid.T) {
		if err := runChainReloads(t, rapid.Uint64().Draw(rt, "seed"), rapid.SliceOfN(step, 1, 8).Draw(rt, "steps")); err != nil {
			rt.Fatal(err)
		}
	})
}

// TestChainRouteChanged: the verdict of a downstream route's filter does not count if its
// configuration was exchanged in the meantime: the new filter is evaluated.
func TestChainRouteChanged(t *testing.T) {
	// Guarantee: chain-changes
	synctest.Test(t, func(t *testing.T) {
		took, evaluated, swapped := &recordingSink{}, make(chan struct{}), make(chan struct{})
		upstream, old := routeOf("a", "1", nil), routeOf("b", "1", took)
		upstream.Sinks, old.Sources, old.Downstream = downstream("b"), nil, true
		changed := old
		changed.Version = "2"
		old.Filter = filters.Func(func(context.Context, *event.Delta) (bool, error) {
			close(evaluated)
			<-swapped
			return false, nil
		})
		b := start(t, upstream, old)
		b.admit(delta(t, event.Added, "x", 0, 1))
		<-evaluated
		change, err := b.Prepare([]spec.Settings{upstream, changed})
		if err != nil {
			t.Fatal(err)
		}
		change.Swap()
		close(swapped)
		change.Finish(t.Context())
		b.drain()
		equal(t, "delivered", took.got(), "added x@1")
		b.balanced("b")
	})
}

// TestAbandonedPassesNothingOn: a worker that a reload abandoned, because the filter of a
// downstream route never returned, passes nothing on when it returns after all: another worker has
// passed its deltas on.
func TestAbandonedPassesNothingOn(t *testing.T) {
	// Guarantee: chain-changes
	synctest.Test(t, func(t *testing.T) {
		took, stuck := &recordingSink{}, make(chan struct{})
		upstream, old := routeOf("a", "1", nil), routeOf("b", "1", took)
		upstream.Sinks, old.Sources, old.Downstream = downstream("b"), nil, true
		upstreamChanged, changed := upstream, old
		upstreamChanged.Version, changed.Version = "2", "2"
		old.Filter = filters.Func(func(context.Context, *event.Delta) (bool, error) { <-stuck; return true, nil })
		b := start(t, upstream, old)
		b.admit(delta(t, event.Added, "x", 0, 1))
		pass(time.Second)
		b.exchange(nil, upstreamChanged, changed)
		pass(time.Second)
		equal(t, "delivered", took.got(), "added x@1")
		close(stuck)
		b.drain()
		pass(time.Second)
		equal(t, "in the end", took.got(), "added x@1")
		b.balanced("a")
		b.balanced("b")
	})
}
