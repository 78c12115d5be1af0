package pipeline_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/pipeline"
)

// fedReload is one step: what comes, how long it has, and what is different in the configuration then.
type fedReload struct {
	deltas, wait int
	changed      [3]bool // a, b, c are made anew
	renamed      [3]bool // a, b, c have another name, and take over what the old one owes
	without      bool    // b is not there, and nothing feeds it
}

// fedReloads is a router whose routes a, b and c (a feeds b and c, b feeds c) come, go and change.
type fedReloads struct {
	t        *testing.T
	luck     *chance
	b        *bench
	disk     *flakyDisk
	versions [3]int
	names    [3]string
	without  bool
	took     map[string]*sink
	sent     int
	want     map[string]map[string]bool
}

func (w *fedReloads) routes() (routes []pipeline.Route) {
	a, b, c := w.names[0], w.names[1], w.names[2]
	to := func(what, name string) pipeline.NamedSink {
		return pipeline.NamedSink{Name: "to " + what, Version: "1", Feeds: name}
	}
	all := []pipeline.Route{
		{Name: a, Handler: emits("a", 1), Capacity: 3, Disk: 1 << 30, Sinks: []pipeline.NamedSink{to("c", c), to("b", b)}},
		{Name: b, Fed: true, Handler: emits("b", 1), Capacity: 2, Sinks: []pipeline.NamedSink{out("x", w.took["x"]), to("c", c)}},
		{Name: c, Fed: true, Capacity: 2, Disk: 1 << 30, Sinks: []pipeline.NamedSink{out("y", w.took["y"])}},
	}
	for i, r := range all {
		if i == 1 && w.without {
			continue
		}
		if i == 0 && w.without {
			r.Sinks = r.Sinks[:1]
		}
		r.Version = fmt.Sprint(w.versions[i], w.names, w.without)
		if i > 0 { // what it feeds is no matter to it
			r.Version = fmt.Sprint(w.versions[i], w.names[i], w.names[2])
		}
		r.Sources, r.Ops, r.Batch = []string{"pods"}, event.Ops(), pipeline.Batch{Size: 2}
		r.Retry = pipeline.Retry{Attempts: 1000, Max: time.Second}
		routes = append(routes, r)
	}
	return routes
}

func (w *fedReloads) admit(n int) {
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

// reload exchanges the routes while they are at work.
func (w *fedReloads) reload(step fedReload) error {
	if step.without != w.without { // what b is to get is not with a any more, which would not know whom it is for
		if err := w.quiet(); err != nil {
			return err
		}
	}
	was, absent := w.names, w.without || step.without
	w.without = step.without
	for i := range w.names {
		if step.changed[i] {
			w.versions[i]++
		}
		if step.renamed[i] && (i != 1 || !absent) {
			w.names[i] += "'"
		}
	}
	routes := w.routes()
	for i := range routes {
		for n, name := range w.names {
			if routes[i].Name == name && was[n] != name {
				routes[i].Was = was[n]
			}
		}
	}
	change, err := w.b.Prepare(routes)
	if err != nil {
		return err
	}
	for _, name := range change.New() { // it comes back
		if err := change.Restore(name, nil, w.disk.debt(name)); err != nil {
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

// quiet waits until a owes nothing, and the disk knows it. What b owes then, and nobody else, goes and comes with it.
func (w *fedReloads) quiet() error {
	for range 1000 {
		pass(time.Second)
		w.disk.cut(w.b)
		if w.b.Owed(w.names[0]) == 0 {
			return nil
		}
	}
	return errors.New("a does not come to an end")
}

func (w *fedReloads) judge() (wrong error) {
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

func runFedReloads(t *testing.T, seed uint64, steps []fedReload) (wrong error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &fedReloads{
			t: t, luck: &chance{r: rand.New(rand.NewPCG(seed, 2))}, disk: &flakyDisk{disk: disk{}}, names: [3]string{"a", "b", "c"},
			want: map[string]map[string]bool{"x": {}, "y": {}},
		}
		w.took = map[string]*sink{"x": {refuse: w.luck.refuse, before: w.luck.sleep(time.Second)}, "y": {before: w.luck.sleep(2 * time.Second)}}
		w.b = openAs(t, pipeline.Config{Store: w.disk}, w.routes()...)
		w.disk.before = func() { w.disk.cut(w.b) }
		w.b.Start(t.Context())
		for _, step := range steps {
			w.admit(step.deltas)
			pass(time.Duration(step.wait) * 100 * time.Millisecond)
			if wrong = w.reload(step); wrong != nil {
				return
			}
		}
		if wrong = w.reload(fedReload{}); wrong != nil { // b is back
			return
		}
		for range 1000 {
			pass(time.Second)
			w.disk.cut(w.b)
		}
		w.b.drain()
		w.disk.cut(w.b)
		wrong = w.judge()
		for route, owed := range w.disk.disk {
			if len(owed) > 0 {
				wrong = errors.Join(wrong, fmt.Errorf("on disk %s owes %d deltas", route, len(owed)))
			}
		}
	})
	return wrong
}

// TestFedReloads: feeders and what they feed are changed, renamed, removed and brought back in all combinations while they are at work.
// Nothing is lost, nothing comes twice, and the order stays.
func TestFedReloads(t *testing.T) {
	flags := func(rt *rapid.T, what string) (f [3]bool) {
		for i := range f {
			f[i] = rapid.IntRange(0, 2).Draw(rt, what) == 0
		}
		return f
	}
	step := rapid.Custom(func(rt *rapid.T) fedReload {
		return fedReload{
			deltas: rapid.IntRange(0, 8).Draw(rt, "deltas"), wait: rapid.SampledFrom([]int{0, 0, 1, 30}).Draw(rt, "wait"),
			changed: flags(rt, "changed"), renamed: flags(rt, "renamed"), without: rapid.IntRange(0, 3).Draw(rt, "without") == 0,
		}
	})
	rapid.Check(t, func(rt *rapid.T) {
		if err := runFedReloads(t, rapid.Uint64().Draw(rt, "seed"), rapid.SliceOfN(step, 1, 8).Draw(rt, "steps")); err != nil {
			rt.Fatal(err)
		}
	})
}
