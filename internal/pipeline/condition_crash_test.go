package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/deltarouter/deltarouter/internal/pipeline"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/internal/transit"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/filters"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// conditionObject returns an object that is on or off.
func conditionObject(t testing.TB, name, uid string, version int, on bool) *event.Object {
	t.Helper()
	o, err := event.ParseObject(pods, fmt.Sprintf(
		`{"metadata":{"namespace":"default","name":%q,"uid":%q,"resourceVersion":"%d"},"spec":{"on":%v}}`, name, uid, version, on))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func isOn(o *event.Object) bool { return o != nil && string(o.Raw().Path("spec", "on")) == "true" }

var whenOn = filters.Func(func(_ context.Context, d *event.Delta) (bool, error) { return isOn(d.New), nil })

// reportedEdge is an edge that a receiver got.
type reportedEdge struct {
	event.Event

	at      time.Time
	d       *event.Delta
	keyTime time.Duration // see there
}

// edgeReceiver is the receiver behind the sink of a route with a condition. It survives the router.
type edgeReceiver struct {
	mu     sync.Mutex
	faults *faults // of its own, so that a seed determines its faults
	failed int     // in a row
	all    []reportedEdge
}

// edgeSink is the sink of one life, and also its handler, which passes the deltas to it.
type edgeSink struct {
	receiver *edgeReceiver
	fails    bool
	ended    <-chan struct{}
	mu       sync.Mutex
	deltas   map[string]*event.Delta
	keyTimes map[string]time.Duration
}

func (w *edgeSink) Write(_ context.Context, events []event.Event) []error {
	w.receiver.mu.Lock()
	defer w.receiver.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	errs := make([]error, len(events))
	for i, e := range events {
		select {
		case <-w.ended:
			errs[i] = errDown
			continue
		default:
		}
		if w.fails && w.receiver.failed < 3 && w.receiver.faults.oneIn(4) {
			w.receiver.failed++
			errs[i] = errDown
			continue
		}
		w.receiver.failed = 0
		w.receiver.all = append(w.receiver.all, reportedEdge{e, time.Now(), w.deltas[e.ID], w.keyTimes[e.ID]})
	}
	return errs
}

func (w *edgeSink) Close(context.Context) error { return nil }

// conditionModel is a cluster of objects, the disk, and a router with several lives.
type conditionModel struct {
	t      *testing.T
	seed   uint64
	faults *faults // of the router

	version int
	now     map[string]*event.Object
	// the start of the state that a version shows, by uid/version: of objects that turned on, or
	// were listed
	began         map[string]time.Time
	on            []interval
	interruptions []time.Time // the ends of lives, and exchanges of the routes
	cuts          []time.Time
	sent          []*event.Delta

	store         *flakyStore
	written       int
	cache         map[string]*event.Object
	cacheMu       sync.Mutex
	receivers     map[string]*edgeReceiver
	b             *harness
	ended, caught chan struct{}
	livesMu       sync.Mutex // timers evaluate keys while a life ends
	lives         []lifetime
	skew          time.Duration // of the wall clock
	keyTimes      map[string]*keyTimes
	wrong         error
	batch         spec.Batch
	born          time.Time
	history       []string
}

// interval is a time in which an object was on.
type interval struct {
	uid, version string
	from, to     time.Time
	disturbed    bool // interrupted by a relist
}

func (w *conditionModel) failf(format string, args ...any) {
	w.wrong = errors.Join(w.wrong, fmt.Errorf(format, args...))
}

// conditionRoutes are the tested conditions, by the names of their routes.
var conditionRoutes = map[string]spec.When{
	"now": {}, "now keyed": {}, "now fails": {}, "now fold": {}, "for": {For: time.Minute}, "every": {For: 30 * time.Second, Every: 45 * time.Second},
	"for fails": {For: 20 * time.Second}, "now limited": {}, "now limited all": {}, "for limited": {For: time.Minute},
}

func (w *conditionModel) routes() (routes []spec.Settings) {
	for _, name := range slices.Sorted(maps.Keys(conditionRoutes)) {
		when := conditionRoutes[name]
		when.Filter, when.Version, when.CaughtUp = whenOn, "1", w.caught
		when.Resource = func(string) *event.Resource { return pods }
		when.Object = func(_ string, key event.Key) *event.Object {
			w.cacheMu.Lock()
			defer w.cacheMu.Unlock()
			return w.cache[key.Name]
		}
		if w.receivers[name] == nil {
			w.receivers[name] = &edgeReceiver{faults: &faults{r: rand.New(rand.NewPCG(w.seed, uint64(len(w.receivers)+1)))}}
		}
		wire := &edgeSink{receiver: w.receivers[name], fails: name == "now fails" || name == "for fails", ended: w.ended, deltas: map[string]*event.Delta{}, keyTimes: map[string]time.Duration{}}
		limit := w.limit(name)
		r := spec.Settings{
			Name: name, Sources: []string{"pods"}, Ops: []event.Op{event.Entered, event.Left}, When: when, Existing: true, Batch: w.batch, Concurrency: 2, Limit: limit,
			Retry: spec.Retry{Exact: true},
			Sinks: []spec.NamedSink{{Name: name, Sink: wire}},
			Handler: handleEach(func(d *event.Delta) plugins.Result {
				wire.mu.Lock()
				defer wire.mu.Unlock()
				id := event.New(d, name, 0, nil).ID
				wire.deltas[id] = d
				if a := w.keyTimes[name]; a != nil {
					a.mu.Lock()
					wire.keyTimes[id] = a.at[d.Object().UID()+"/"+d.Object().ResourceVersion()]
					a.mu.Unlock()
				}
				return ok(d)
			}),
		}
		switch name {
		case "now keyed":
			r.Key = func(_ context.Context, d *event.Delta) (string, error) { return d.Object().ResourceVersion()[:1], nil }
		case "now fold":
			r.Capacity = 1
		}
		routes = append(routes, r)
	}
	return routes
}

// begin starts the router from the disk. gap: the watch cannot be resumed, and only the net changes
// are seen.
func (w *conditionModel) begin(gap bool) {
	w.ended, w.caught = make(chan struct{}), make(chan struct{})
	w.cache = map[string]*event.Object{}
	for _, d := range w.sent[:w.written] {
		w.apply(d)
	}
	w.note("begins, gap %v, the wall clock is off by %v", gap, w.skew)
	w.livesMu.Lock()
	w.lives = append(w.lives, lifetime{from: time.Now(), skew: w.skew})
	w.livesMu.Unlock()
	routes := w.routes()
	w.b = openAs(w.t, pipeline.Config{Store: w.store, Clock: skewedClock{timer.Real(), w.skew}}, routes...)
	for _, r := range routes {
		w.store.restore(w.b, r.Name)
	}
	w.b.Start(w.t.Context())
	again := slices.Clone(w.sent[w.written:])
	if gap {
		again = w.net()
	}
	w.sent = w.sent[:w.written]
	for _, d := range again {
		w.admit(d)
	}
	close(w.caught)
}

func (w *conditionModel) apply(d *event.Delta) {
	w.cacheMu.Lock()
	defer w.cacheMu.Unlock()
	if d.New == nil {
		delete(w.cache, d.Key().Name)
	} else {
		w.cache[d.Key().Name] = d.New
	}
}

// net returns the deltas of a relist: the differences between the cache and the cluster.
func (w *conditionModel) net() (deltas []*event.Delta) {
	for _, name := range slices.Sorted(maps.Keys(w.cache)) {
		if is := w.now[name]; is == nil || is.UID() != w.cache[name].UID() {
			deltas = append(deltas, &event.Delta{Source: "pods", Op: event.Deleted, Old: w.cache[name], Stale: true})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(w.now)) {
		was, is := w.cache[name], w.now[name]
		switch {
		case was == nil || was.UID() != is.UID():
			deltas = append(deltas, &event.Delta{Source: "pods", Op: event.Added, New: is})
		case was.ResourceVersion() != is.ResourceVersion():
			deltas = append(deltas, &event.Delta{Source: "pods", Op: event.Updated, Old: was, New: is})
		default:
			continue
		}
		if isOn(is) {
			w.began[is.UID()+"/"+is.ResourceVersion()] = time.Now()
		}
	}
	for _, d := range deltas {
		transit.Of(d).Listed = true
	}
	return deltas
}

func (w *conditionModel) admit(d *event.Delta) {
	again := *d
	again.Seen = time.Now().Add(w.skew)
	w.sent = append(w.sent, &again)
	w.note("%s", show(&again))
	commit, err := w.b.Admit(w.t.Context(), &again)
	if err != nil {
		w.failf("admit: %w", err)
		return
	}
	before := w.faults.oneIn(2)
	w.others(before)
	w.apply(&again)
	w.others(!before)
	if commit != nil {
		commit.Commit()
	}
}

// others lets other goroutines run, including timers, in the middle of a change.
func (w *conditionModel) others(now bool) {
	for n := w.faults.upTo(40); now && n > 0; n-- {
		runtime.Gosched()
	}
}

// change changes an object.
func (w *conditionModel) change(kind, name string) {
	old := w.now[name]
	w.version++
	uid, on := name+"0", kind != "off"
	d := &event.Delta{Source: "pods", Op: event.Updated, Old: old}
	transit.Of(d).Listed = kind == "listed" || kind == "listed off"
	switch {
	case old == nil:
		d.Op, transit.Of(d).Listed, uid = event.Added, false, fmt.Sprint(name, w.version)
	case kind == "delete":
		d.Op = event.Deleted
	default:
		uid = old.UID()
	}
	on = on && kind != "listed off" && kind != "delete"
	if d.Op != event.Deleted {
		d.New = conditionObject(w.t, name, uid, w.version, on)
	} else if old == nil {
		return
	}
	w.now[name] = d.New
	if d.New == nil {
		delete(w.now, name)
	}
	w.remember(old, d)
	w.admit(d)
}

// remember records the intervals in which objects were on.
func (w *conditionModel) remember(old *event.Object, d *event.Delta) {
	was, is := isOn(old), isOn(d.New)
	if is && (!was || transit.Of(d).Listed) {
		w.began[d.New.UID()+"/"+d.New.ResourceVersion()] = time.Now()
	}
	if was {
		for i := range w.on {
			if w.on[i].uid == old.UID() && w.on[i].to.IsZero() {
				w.on[i].disturbed = w.on[i].disturbed || transit.Of(d).Listed
				if !is {
					w.on[i].to = time.Now()
				}
			}
		}
	} else if is {
		w.on = append(w.on, interval{uid: d.New.UID(), version: d.New.ResourceVersion(), from: time.Now(), disturbed: transit.Of(d).Listed})
	}
}

func (w *conditionModel) cut() {
	cuts := w.b.Dirty()
	if w.written < len(w.sent) || len(cuts) > 0 {
		w.note("cut")
	}
	w.written = len(w.sent)
	w.cuts = append(w.cuts, time.Now())
	w.store.mu.Lock()
	w.store.write(w.t, cuts)
	w.store.mu.Unlock()
	w.b.Saved(w.store.weigh)
}

// end ends this life.
func (w *conditionModel) end(crash bool) {
	w.interruptions = append(w.interruptions, time.Now())
	w.note("ends, crash %v", crash)
	if crash {
		close(w.ended)
	} else {
		ctx, cancel := context.WithTimeout(w.t.Context(), time.Second)
		_ = w.b.Drain(ctx)
		cancel()
	}
	if err := w.b.Close(w.t.Context()); err != nil {
		w.failf("%w", err)
	}
	if !crash {
		w.cut()
	}
	w.livesMu.Lock()
	w.lives[len(w.lives)-1].to = time.Now()
	w.livesMu.Unlock()
}

func (w *conditionModel) reload() {
	w.interruptions = append(w.interruptions, time.Now())
	w.note("reload")
	change, err := w.b.Prepare(w.routes())
	if err != nil {
		w.failf("%w", err)
		return
	}
	change.Swap()
	if w.faults.oneIn(2) {
		w.cut()
	}
	change.Finish(w.t.Context())
}

// calm lets time pass without changes.
func (w *conditionModel) passQuietly(seconds int) {
	for range seconds {
		pass(time.Second)
		w.cut()
	}
}

type conditionStep struct {
	kind, name string
	wait       int // seconds
	then       string
	jump       time.Duration // of the wall clock, from this life to the next
}

func runConditions(t *testing.T, steps []conditionStep, seed uint64, batch spec.Batch) (wrong error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		random := &faults{r: rand.New(rand.NewPCG(seed, 0))}
		w := &conditionModel{
			t: t, seed: seed, faults: random, now: map[string]*event.Object{}, began: map[string]time.Time{}, receivers: map[string]*edgeReceiver{},
			store: &flakyStore{fakeStore: fakeStore{}}, batch: batch, keyTimes: map[string]*keyTimes{}, born: time.Now(),
		}
		w.begin(false)
		for _, step := range steps {
			if step.kind != "" {
				w.change(step.kind, step.name)
			}
			pass(time.Duration(step.wait) * time.Second)
			switch step.then {
			case "cut":
				w.cut()
			case "crash", "gap":
				w.end(true)
				w.skew += step.jump
				pass(time.Duration(w.faults.upTo(60)) * time.Second)
				w.begin(step.then == "gap")
			case "stop":
				w.end(false)
				w.skew += step.jump
				pass(time.Duration(w.faults.upTo(60)) * time.Second)
				w.begin(false)
			case "reload":
				w.reload()
			}
		}
		w.passQuietly(300)
		w.change("on", "za") // takes the last suppressed count
		w.passQuietly(180)
		w.change("on", "zb")
		w.passQuietly(70)
		w.end(false)
		w.check()
		if wrong = w.wrong; wrong != nil {
			wrong = fmt.Errorf("%w\n%s", wrong, w.report())
		}
	})
	return wrong
}

// TestConditionsSurvive is the crash model of rules about time: with any changes of the objects,
// any crash, stop or reload of the router, a lost watch history, and jumps of the wall clock,
// Entered and Left alternate for each object and route, no report is early, no report that was due
// while the router ran is missed, and in the end the reported conditions are those that hold. A
// limit is never exceeded, and its suppressed reports are made later, or counted.
//
// No other model covers time: the length of a condition, gaps in the watch, and the wall clock
// decide which reports are expected, while TestNothingIsLostInACrash expects every delta.
func TestConditionsSurvive(t *testing.T) {
	// Guarantee: limit-of-conditions, conditions-alternate, entered, left, clock-jumps
	// Guarantee: conditions-gap
	step := rapid.Custom(func(rt *rapid.T) conditionStep {
		return conditionStep{
			kind: rapid.SampledFrom([]string{"on", "on", "on", "off", "off", "delete", "listed", "listed off", ""}).Draw(rt, "kind"),
			name: rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "name"), wait: rapid.SampledFrom([]int{0, 0, 1, 15, 61}).Draw(rt, "wait"),
			then: rapid.SampledFrom([]string{"", "", "cut", "cut", "crash", "gap", "stop", "reload"}).Draw(rt, "then"),
			jump: rapid.SampledFrom([]time.Duration{0, 0, -2 * time.Hour, -30 * time.Second, 30 * time.Second, 2 * time.Hour}).Draw(rt, "jump"),
		}
	})
	rapid.Check(t, func(rt *rapid.T) {
		steps := rapid.SliceOfN(step, 1, 25).Draw(rt, "steps")
		batch := spec.Batch{Size: rapid.IntRange(1, 4).Draw(rt, "batch"), Wait: 10 * time.Millisecond}
		if err := runConditions(t, steps, rapid.Uint64().Draw(rt, "seed"), batch); err != nil {
			rt.Fatal(err)
		}
	})
}
