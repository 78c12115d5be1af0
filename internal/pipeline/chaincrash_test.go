package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/deltarouter/deltarouter/internal/pipeline"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/filters"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// chainModel is the world around a router whose routes deliver to each other: the changes, the
// disk, and the sinks.
//
//	a ──► b ──► d ──► y
//	 \     └──► x    ↗
//	  └──► c ──► d ─┘
//
// The sinks of x and y take nothing before the last life of the router, which does not crash: until
// then all their deltas stay pending.
type chainModel struct {
	t       *testing.T
	faults  *faults
	p       chainPlan
	store   *flakyStore
	sent    []*event.Delta
	written int // the number of deltas of sent that are on disk
	opened  atomic.Bool
	// of x and y, exactly; and of a and d, which may get a delta again after a crash
	sinks map[string]*recordingSink

	b       *harness
	cutting sync.Mutex // like the cut locks of the sources
	// full while a delta is between Admit and its commit, or routes are exchanged
	admitting chan struct{}
	committed int
	version   int
	wrong     error
}

type chainPlan struct {
	seed     uint64
	lives    []chainLife
	workers  int
	batch    int
	inFlight int64
	tight    bool // x and y have little room
}

// chainLife is one life of the router: its deltas, the number of cuts before it crashes, and the
// number of reloads.
type chainLife struct{ deltas, cuts, reloads int }

func (w *chainModel) routes() []spec.Settings {
	w.version++
	version := strconv.Itoa(w.version)
	keyed := func(_ context.Context, d *event.Delta) (string, error) { return d.Object().ResourceVersion()[:1], nil }
	room := func(r spec.Settings) spec.Settings {
		r.Capacity, r.Disk = 4, 1<<30
		if w.p.tight {
			r.Disk = 0
		}
		return r
	}
	routes := []spec.Settings{
		{Name: "a", Handler: w.troubled(emittingHandler("a", 2)), Capacity: 3, Disk: 1 << 30, Overflow: spec.Block, Sinks: append(downstream("b", "c"), out("a", w.sinks["a"]))},
		{Name: "b", Downstream: true, Capacity: 2, Disk: 1 << 20, Sinks: downstream("d", "x")},
		{Name: "c", Downstream: true, Handler: w.troubled(emittingHandler("c", 1)), Key: keyed, Capacity: 3, Sinks: downstream("d")},
		{Name: "d", Downstream: true, Capacity: 5, Sinks: append(downstream("y"), out("d", w.sinks["d"]))},
		room(downstreamRoute("x", out("x", w.sinks["x"]))),
		room(downstreamRoute("y", out("y", w.sinks["y"]))),
	}
	for i := range routes {
		r := &routes[i]
		r.Version, r.Sources, r.Ops, r.Filter = version, []string{"pods"}, event.Ops(), w.filter(r.Name)
		r.Batch, r.Concurrency = spec.Batch{Size: w.p.batch}, w.p.workers
		r.Retry = spec.Retry{Attempts: 1000, Backoff: time.Millisecond, Max: 5 * time.Millisecond}
		turn := w.faults.upTo(len(r.Sinks))
		r.Sinks = append(r.Sinks[turn:], r.Sinks[:turn]...)
	}
	return routes
}

// filter returns the filter of a route. It is slow, so that much can happen during an evaluation.
func (w *chainModel) filter(route string) filters.Func {
	return func(_ context.Context, d *event.Delta) (bool, error) {
		if w.faults.oneIn(8) {
			time.Sleep(time.Duration(w.faults.upTo(3)) * time.Millisecond)
		}
		return route != "c" || d.Event.Type == "a1", nil
	}
}

// troubled returns a handler that sometimes returns the verdict retry.
func (w *chainModel) troubled(h handlerFunc) handlerFunc {
	return func(ctx context.Context, batch []*event.Delta) ([]plugins.Result, error) {
		results, err := h(ctx, batch)
		for i := range results {
			if w.faults.oneIn(10) {
				results[i] = plugins.Result{Verdict: plugins.Retry, Err: errDown}
			}
		}
		return results, err
	}
}

// begin starts the router from the disk.
func (w *chainModel) begin() {
	w.t.Helper()
	routes := w.routes()
	w.b = openAs(w.t, pipeline.Config{Store: w.store, InFlight: w.p.inFlight}, routes...)
	for _, r := range routes {
		pending := w.store.pending(r.Name)
		if err := w.b.Restore(r.Name, pending, w.store.backlog(r.Name)); err != nil {
			w.t.Fatal(err)
		}
	}
	w.committed = w.written
	w.b.Start(w.t.Context())
}

// admit admits the deltas that are not on disk, and new ones.
func (w *chainModel) admit() {
	for _, d := range w.sent[w.committed:] {
		w.admitting <- struct{}{}
		commit, err := w.b.Admit(w.t.Context(), d)
		if err != nil { // closed in the meantime
			<-w.admitting
			return
		}
		w.cutting.Lock()
		commit.Commit()
		w.committed++
		w.cutting.Unlock()
		<-w.admitting
		if w.faults.oneIn(3) {
			time.Sleep(time.Duration(w.faults.upTo(4)) * time.Millisecond)
		}
	}
}

// cut writes the disk at any moment.
func (w *chainModel) cut() {
	w.cutting.Lock()
	cuts, committed := w.b.Dirty(), w.committed
	w.cutting.Unlock()
	w.store.mu.Lock()
	w.store.write(w.t, cuts)
	w.store.mu.Unlock()
	w.written = committed
	if !w.opened.Load() && w.wrong == nil {
		w.wrong = w.conserved()
	}
	w.b.Saved(w.store.weigh)
}

// conserved checks that the disk would be right after a crash now: each delta on disk that x and y
// must get is pending in exactly one place, at these or at a route before them.
func (w *chainModel) conserved() (wrong error) {
	pending := map[string]int{}
	for route, entries := range w.store.fakeStore {
		for _, o := range entries {
			way, key := "", " "+o.Delta.Key().Name+"@"+o.Delta.Object().ResourceVersion()
			if o.Delta.Event != nil {
				way = o.Delta.Event.Type
			}
			for _, to := range map[string][][2]string{
				"a": {{"to b", "x a0"}, {"to b", "x a1"}, {"to b", "y a0"}, {"to b", "y a1"}, {"to c", "y a1 c0"}},
				"b": {{"to x", "x " + way}, {"to d", "y " + way}}, "c": {{"to d", "y " + way + " c0"}}, "d": {{"to y", "y " + way}},
				"x": {{"", "x " + way}}, "y": {{"", "y " + way}},
			}[route] {
				if to[0] == "" || !slices.Contains(o.Closed, to[0]) {
					pending[to[1]+key]++
				}
			}
		}
	}
	for _, d := range w.sent[:w.written] {
		for _, way := range []string{"x a0", "x a1", "y a0", "y a1", "y a1 c0"} {
			what := way + " " + d.Key().Name + "@" + d.Object().ResourceVersion()
			if pending[what] != 1 {
				wrong = errors.Join(wrong, fmt.Errorf("a cut has %q %d times", what, pending[what]))
			}
		}
	}
	return wrong
}

func (w *chainModel) reload() {
	change, err := w.b.Prepare(w.routes())
	if err != nil {
		w.t.Error(err)
		return
	}
	end := w.b.Yield()
	w.admitting <- struct{}{}
	change.Swap()
	<-w.admitting
	end()
	change.Finish(w.t.Context())
}

// live runs one life. It ends abruptly with the last cut.
func (w *chainModel) live(l chainLife) {
	w.begin()
	for range l.deltas {
		v := len(w.sent) + 1
		w.sent = append(w.sent, delta(w.t, event.Updated, fmt.Sprint("x", v%4), v, v+1))
	}
	var done sync.WaitGroup
	done.Go(w.admit)
	closed := make(chan struct{})
	done.Go(func() { w.pollStatus(closed) })
	done.Go(func() {
		for range l.reloads {
			time.Sleep(time.Duration(w.faults.upTo(20)) * time.Millisecond)
			w.reload()
		}
	})
	for range l.cuts {
		if w.faults.oneIn(4) {
			time.Sleep(time.Duration(w.faults.upTo(4)) * time.Millisecond)
		}
		w.cut()
	}
	if err := w.b.Close(w.t.Context()); err != nil {
		w.t.Error(err)
	}
	close(closed)
	done.Wait()
}

// pollStatus queries the status of the routes continuously, so that they wait for each other.
func (w *chainModel) pollStatus(until <-chan struct{}) {
	for n := 0; ; n++ {
		select {
		case <-until:
			return
		default:
			w.b.Status()
		}
		if n%50 == 0 {
			time.Sleep(time.Millisecond)
		}
	}
}

// finish delivers all pending deltas.
func (w *chainModel) finish() (wrong error) {
	w.opened.Store(true)
	w.begin()
	w.admit()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Hour)
	defer cancel()
	stop := make(chan struct{})
	var cutter sync.WaitGroup
	cutter.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Second):
				w.cut()
			}
		}
	})
	wrong = errors.Join(w.wrong, w.b.WaitDelivered(ctx), w.b.Drain(ctx))
	close(stop)
	cutter.Wait()
	w.cut()
	for route, pending := range w.store.fakeStore {
		if len(pending) > 0 {
			wrong = errors.Join(wrong, fmt.Errorf("on disk %s has %d pending deltas", route, len(pending)))
		}
	}
	for _, exact := range []string{"x", "y"} {
		wrong = errors.Join(wrong, w.exactly(exact))
	}
	for _, name := range []string{"a", "d"} {
		if got, want := w.atLeast(name), w.wanted(name); !maps.Equal(got, want) {
			wrong = errors.Join(wrong, fmt.Errorf("%s took %d different events of %d", name, len(got), len(want)))
		}
	}
	return wrong
}

// wanted lists the events that a sink must get.
func (w *chainModel) wanted(name string) map[string]bool {
	ways := map[string][]string{"a": {"a0", "a1"}, "x": {"a0", "a1"}, "d": {"a0", "a1", "a1 c0"}, "y": {"a0", "a1", "a1 c0"}}[name]
	want := map[string]bool{}
	for _, d := range w.sent {
		for _, way := range ways {
			want[fmt.Sprint(way, " ", d.Key().Name, "@", d.Object().ResourceVersion())] = true
		}
	}
	return want
}

func (w *chainModel) atLeast(name string) map[string]bool {
	got := map[string]bool{}
	for _, e := range w.sinks[name].types() {
		got[e] = true
	}
	return got
}

// exactly checks that each event reached a sink once, and in the order of each path and object.
func (w *chainModel) exactly(name string) (wrong error) {
	got, last := map[string]bool{}, map[string]int{}
	for _, e := range w.sinks[name].events {
		way := e.Type + " " + e.Of.Key().Name
		version, err := strconv.Atoi(e.K8sResourceVersion)
		what := fmt.Sprint(way, "@", version)
		if got[what] {
			wrong = errors.Join(wrong, fmt.Errorf("%s was given %s twice", name, what))
		} else if version <= last[way] && name == "x" { // y gets what c orders by another key
			wrong = errors.Join(wrong, fmt.Errorf("%s was given %s after version %d", name, what, last[way]))
		}
		wrong = errors.Join(wrong, err)
		got[what] = true
		last[way] = max(last[way], version)
	}
	if want := w.wanted(name); !maps.Equal(got, want) {
		wrong = errors.Join(wrong, fmt.Errorf("%s was given %d events of %d", name, len(got), len(want)))
	}
	return wrong
}

func (p chainPlan) run(t *testing.T) (wrong error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &chainModel{t: t, p: p, faults: &faults{r: rand.New(rand.NewPCG(p.seed, 1))}, store: &flakyStore{fakeStore: fakeStore{}}, admitting: make(chan struct{}, 1)}
		shut := func(event.Event) error {
			if w.opened.Load() {
				return nil
			}
			return errDown
		}
		w.sinks = map[string]*recordingSink{
			"a": {refuse: w.faults.refuse}, "d": {before: w.faults.sleep(10 * time.Millisecond)}, "x": {refuse: shut}, "y": {refuse: shut},
		}
		for _, l := range p.lives {
			w.live(l)
		}
		wrong = w.finish()
	})
	return wrong
}

// TestChainExactlyOnceInACrash is the crash model of chains: at any moment of cuts, crashes and
// reloads, an event handed from one route to another is neither lost nor handed over again: along a
// chain, along two paths, to routes without room and to some that spill.
//
// No other model covers a cut at any moment of the hand-over between two routes: here cuts are
// written while workers, the source, reloads and readers of the status run, and each cut is checked
// by itself (conserved). TestNothingIsLostInACrash writes its cuts between the steps of one
// goroutine, and tolerates that a sink gets events again that it took after the last cut.
func TestChainExactlyOnceInACrash(t *testing.T) {
	// Guarantee: chain-changes, chain-kept
	life := rapid.Custom(func(rt *rapid.T) chainLife {
		return chainLife{
			deltas: rapid.IntRange(0, 30).Draw(rt, "deltas"), cuts: rapid.IntRange(0, 150).Draw(rt, "cuts"),
			reloads: rapid.SampledFrom([]int{0, 0, 1, 3}).Draw(rt, "reloads"),
		}
	})
	rapid.Check(t, func(rt *rapid.T) {
		p := chainPlan{
			seed: rapid.Uint64().Draw(rt, "seed"), lives: rapid.SliceOfN(life, 1, 5).Draw(rt, "lives"),
			workers: rapid.IntRange(1, 3).Draw(rt, "workers"), batch: rapid.IntRange(1, 4).Draw(rt, "batch"),
			inFlight: rapid.SampledFrom([]int64{2 * entryBytes, 1 << 20}).Draw(rt, "in flight"), tight: rapid.Bool().Draw(rt, "tight"),
		}
		if err := p.run(t); err != nil {
			rt.Fatal(err)
		}
	})
}
