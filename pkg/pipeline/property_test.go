package pipeline_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/filters"
	"github.com/deltarouter/deltarouter/pkg/metrics"
	"github.com/deltarouter/deltarouter/pkg/pipeline"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// change is a delta in a form that can be compared: a version of 0 is no object.
type change struct {
	op       string
	name     string
	uid      string
	old, new int
}

// cluster makes deltas as a source does, and keeps what is there in the end.
type cluster struct {
	t       *testing.T
	there   map[string]change // by name; new is its version
	version int
}

// step makes the deltas of one random thing that happens to an object.
func (c *cluster) step(kind, name string) []*event.Delta {
	c.version++
	now, exists := c.there[name]
	added := func() *event.Delta {
		c.version++
		c.there[name] = change{name: name, uid: fmt.Sprint("uid", c.version), new: c.version}
		return deltaOf(c.t, event.Added, name, c.there[name].uid, 0, c.version)
	}
	gone := func(op event.Op) *event.Delta {
		delete(c.there, name)
		return deltaOf(c.t, op, name, now.uid, c.version, 0)
	}
	switch {
	case !exists:
		return []*event.Delta{added()}
	case kind == "delete":
		return []*event.Delta{gone(event.Deleted)}
	case kind == "deselect":
		return []*event.Delta{gone(event.Deselected)}
	case kind == "recreate":
		return []*event.Delta{gone(event.Deleted), added()}
	case kind == "sync":
		return []*event.Delta{deltaOf(c.t, event.Sync, name, now.uid, 0, now.new)}
	case kind == "relist": // after a gap: of each object what changed
		var deltas []*event.Delta
		for _, other := range []string{"a", "b", "c"} {
			if _, exists := c.there[other]; exists {
				deltas = append(deltas, c.step([]string{"update", "delete", "recreate"}[c.version%3], other)...)
			}
		}
		return deltas
	default:
		c.there[name] = change{name: name, uid: now.uid, new: c.version}
		return []*event.Delta{deltaOf(c.t, event.Updated, name, now.uid, now.new, c.version)}
	}
}

// changeOf reads what an event tells, from its data alone.
func changeOf(t *testing.T, e event.Event) change {
	type object struct {
		Metadata struct{ Name, UID, ResourceVersion string }
	}
	var data struct {
		Op                string
		Object, OldObject *object
	}
	if err := json.Unmarshal(e.Data, &data); err != nil {
		t.Fatal(err)
	}
	version := func(o *object) (v int) {
		if o != nil {
			v, _ = strconv.Atoi(o.Metadata.ResourceVersion)
		}
		return v
	}
	c := change{data.Op, data.Object.Metadata.Name, data.Object.Metadata.UID, version(data.OldObject), version(data.Object)}
	if c.op == "deleted" || c.op == "deselected" {
		c.old, c.new = c.new, 0
	}
	return c
}

// chance is a source of trouble that several goroutines share.
type chance struct {
	mu sync.Mutex
	r  *rand.Rand
}

func (c *chance) in(n int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.r.IntN(n) == 0
}

func (c *chance) sleep(most time.Duration) func(context.Context) {
	return func(ctx context.Context) {
		c.mu.Lock()
		d := time.Duration(c.r.Int64N(int64(most)))
		c.mu.Unlock()
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
	}
}

// troubled is a handler that does everything a handler may do, but ends well if it is asked often enough.
func (c *chance) troubled(_ context.Context, batch []*event.Delta) ([]plugins.Result, error) {
	switch {
	case c.in(12):
		return nil, errors.New("out of sorts")
	case c.in(12):
		panic("out of its mind")
	case c.in(12):
		return make([]plugins.Result, len(batch)+1), nil
	}
	results := make([]plugins.Result, len(batch))
	for i, d := range batch {
		switch {
		case c.in(6):
			results[i] = plugins.Result{Verdict: plugins.Retry, Err: plugins.RetryLater(errDown, time.Second)}
		case c.in(6):
			results[i] = plugins.Result{Verdict: plugins.Fail, Err: errDown}
		default:
			results[i] = plugins.Result{Events: []plugins.Emit{{Data: event.Payload(d)}}}
		}
	}
	return results, nil
}

func (c *chance) refuse(event.Event) error {
	switch {
	case c.in(5):
		return plugins.RetryLater(errDown, 3*time.Second)
	case c.in(2):
		return errDown
	}
	return nil
}

// world is one run: routes in every kind of trouble, and their sinks.
type world struct {
	names  []string
	routes []pipeline.Route
	sinks  []*sink
}

func (w *world) add(name string, s *sink, r pipeline.Route) {
	r.Name, r.Sinks = name, []pipeline.NamedSink{{Name: name, Sink: s}}
	r.Retry.Attempts = 1000
	w.names, w.routes, w.sinks = append(w.names, name), append(w.routes, r), append(w.sinks, s)
}

// newWorld makes the routes. those of the first kind deliver every delta, the next the net change; the last may lose some.
func newWorld(c *chance, batch pipeline.Batch, workers int) (w *world, opens []func()) {
	w = &world{}
	ready := make(chan struct{})
	blocked, open := gate()
	add := func(name string, s *sink, r pipeline.Route) {
		r.Batch, r.Concurrency = batch, workers
		w.add(name, s, r)
	}
	add("every slow", &sink{before: c.sleep(2 * time.Second)}, pipeline.Route{})
	add("every failing", &sink{refuse: c.refuse}, pipeline.Route{})
	add("every troubled", &sink{}, pipeline.Route{Handler: handler(c.troubled)})
	add("every troubled and failing", &sink{refuse: c.refuse}, pipeline.Route{Handler: handler(c.troubled)})
	add("every block", &sink{before: c.sleep(time.Second), refuse: c.refuse}, pipeline.Route{Overflow: pipeline.Block, Capacity: 2})
	add("every unready", &sink{}, pipeline.Route{Ready: ready})
	add("every keyed", &sink{refuse: c.refuse, before: c.sleep(time.Second)}, pipeline.Route{
		Key: func(_ context.Context, d *event.Delta) (string, error) {
			version, err := strconv.Atoi(d.Object().ResourceVersion())
			return strconv.Itoa(version / 2 % 3), err
		},
	})
	add("net latest", &sink{before: c.sleep(5 * time.Second), refuse: c.refuse}, pipeline.Route{Deliver: pipeline.Latest})
	add("net latest keyed", &sink{before: c.sleep(5 * time.Second), refuse: c.refuse}, pipeline.Route{Deliver: pipeline.Latest, Key: w.routes[6].Key})
	add("net fold", &sink{before: c.sleep(5 * time.Second)}, pipeline.Route{Capacity: 2, Handler: handler(c.troubled)})
	add("net blocked", blocked, pipeline.Route{Capacity: 2})
	add("net unready", &sink{}, pipeline.Route{Ready: ready, Capacity: 2})
	add("net unready latest", &sink{before: c.sleep(5 * time.Second)}, pipeline.Route{Ready: ready, Deliver: pipeline.Latest})
	add("lossy", &sink{before: c.sleep(5 * time.Second)}, pipeline.Route{Overflow: pipeline.DropOldest, Capacity: 2})
	return w, []func(){open, func() { close(ready) }}
}

// replay plays what a route saw, as a receiver would that keeps a copy of the cluster. Each change must fit the one before.
func replay(saw []change) (map[string]change, error) {
	there := map[string]change{}
	for i, c := range saw {
		now, exists := there[c.name]
		switch {
		case c.op == "added" && exists,
			c.op != "added" && !exists,
			c.op != "added" && c.uid != now.uid,
			c.op == "updated" && c.old != now.new,
			c.op != "added" && max(c.old, c.new) < now.new:
			return nil, fmt.Errorf("change %d, %v, does not follow %v", i, c, now)
		case c.new == 0:
			delete(there, c.name)
		default:
			there[c.name] = change{name: c.name, uid: c.uid, new: c.new}
		}
	}
	return there, nil
}

func byName(changes []change) map[string][]change {
	m := map[string][]change{}
	for _, c := range changes {
		m[c.name] = append(m[c.name], c)
	}
	return m
}

func equalMaps[V any](a, b map[string]V) bool { return fmt.Sprint(a) == fmt.Sprint(b) }

// judge says what is wrong with what a route saw.
func judge(name string, saw, sent []change, c *cluster) error {
	switch name[:3] {
	case "eve":
		if got, want := byName(saw), byName(sent); !equalMaps(got, want) {
			return fmt.Errorf("saw %v, want %v", got, want)
		}
	case "net":
		there, err := replay(saw)
		if err != nil {
			return err
		}
		if !equalMaps(there, c.there) {
			return fmt.Errorf("ended with %v, want %v", there, c.there)
		}
	default:
		for object, changes := range byName(saw) {
			next := 0
			for _, seen := range changes {
				rest := byName(sent)[object][next:]
				i := slices.Index(rest, seen)
				if i < 0 {
					return fmt.Errorf("saw %v twice, too late or never sent", seen)
				}
				next += i + 1
			}
		}
	}
	return nil
}

type plan struct {
	kinds, names []string
	waits        []int
	opens        []int
	batch        pipeline.Batch
	workers      int
	seed         uint64
}

// run plays a plan and says what is wrong.
func (p plan) run(t *testing.T) (wrong error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		luck := &chance{r: rand.New(rand.NewPCG(p.seed, 0))}
		w, opens := newWorld(luck, p.batch, p.workers)
		routes := slices.Clone(w.routes)
		for i := range routes {
			routes[i].Filter = filters.Func(func(_ context.Context, d *event.Delta) (bool, error) { return d.Key().Name != "d", nil })
		}
		b := start(t, routes...)
		c := &cluster{t: t, there: map[string]change{}}
		var sent []change
		for i, kind := range p.kinds {
			for _, d := range c.step(kind, p.names[i]) {
				b.admit(d)
				if d.Key().Name == "d" {
					delete(c.there, "d")
					continue
				}
				sent = append(sent, changeOf(t, event.New(d, "", 0, event.Payload(d))))
			}
			time.Sleep(time.Duration(p.waits[i]) * 100 * time.Millisecond)
			for j, at := range p.opens {
				if at == i {
					opens[j]()
				}
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if wrong = b.Drain(ctx); wrong != nil {
			return
		}
		for i, name := range w.names {
			var saw []change
			for _, e := range w.sinks[i].events {
				saw = append(saw, changeOf(t, e))
			}
			if err := judge(name, saw, sent, c); err != nil {
				wrong = errors.Join(wrong, fmt.Errorf("route %s: %w", name, err))
			}
			b.balanced(name)
		}
		if n := b.value("route_deltas_total", metrics.DeadLettered); n > 0 {
			wrong = errors.Join(wrong, fmt.Errorf("%v dead letters: %v", n, b.letters.got()))
		}
	})
	return wrong
}

// TestEachRouteKeepsItsPromise: whatever happens to the objects, and whatever trouble its sink and its handler make, a route that
// delivers each delta delivers each once and in order; one that folds ends with the state of the cluster, by changes that fit each
// other; one that may lose some never turns their order.
func TestEachRouteKeepsItsPromise(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, 30).Draw(rt, "steps")
		kinds := rapid.SampledFrom([]string{"update", "update", "update", "delete", "recreate", "deselect", "sync", "relist"})
		p := plan{
			kinds:   rapid.SliceOfN(kinds, n, n).Draw(rt, "kinds"),
			names:   rapid.SliceOfN(rapid.SampledFrom([]string{"a", "a", "b", "c", "d"}), n, n).Draw(rt, "names"),
			waits:   rapid.SliceOfN(rapid.SampledFrom([]int{0, 0, 0, 1, 30}), n, n).Draw(rt, "waits"),
			opens:   []int{rapid.IntRange(0, n-1).Draw(rt, "open"), rapid.IntRange(0, n-1).Draw(rt, "ready")},
			batch:   pipeline.Batch{Size: rapid.IntRange(1, 4).Draw(rt, "batch"), Wait: 10 * time.Millisecond},
			workers: rapid.IntRange(1, 3).Draw(rt, "workers"),
			seed:    rapid.Uint64().Draw(rt, "seed"),
		}
		if err := p.run(t); err != nil {
			rt.Fatal(err)
		}
	})
}
