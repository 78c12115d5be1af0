package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/filters"
	"github.com/deltarouter/deltarouter/pkg/pipeline"
)

// receiver is what stands behind a sink: it outlives the router.
type receiver struct {
	mu   sync.Mutex
	took []change
	// born is how much it had taken when the router was started, quiet when nothing was in flight the last time, acked is what quiet
	// was when the disk was written.
	born, quiet, acked int
	done               map[change]bool // in all lives before this one: what was taken until then
}

// wire is a sink of one life of the router. Nothing passes once that life has ended.
type wire struct {
	t     *testing.T
	to    *receiver
	luck  *chance
	slow  time.Duration
	fails bool
	ended <-chan struct{}
}

// Write implements plugins.Sink.
func (w *wire) Write(ctx context.Context, events []event.Event) []error {
	if w.slow > 0 {
		w.luck.sleep(w.slow)(ctx)
	}
	w.to.mu.Lock()
	defer w.to.mu.Unlock()
	errs := make([]error, len(events))
	for i, e := range events {
		select {
		case <-w.ended:
			errs[i] = errDown
			continue
		default:
		}
		if w.fails {
			errs[i] = w.luck.refuse(e)
		}
		if errs[i] == nil {
			w.to.took = append(w.to.took, changeOf(w.t, e))
		}
	}
	return errs
}

// Close implements plugins.Sink.
func (w *wire) Close(context.Context) error { return nil }

// ledger is what outlives the router: what happened in the cluster, the disk, and the receivers.
type ledger struct {
	t         *testing.T
	p         crashPlan
	luck      *chance
	cluster   *cluster
	sent      []*event.Delta
	disk      disk
	written   int // how many of sent the disk knows of
	receivers map[string]*receiver
	wrong     error

	b     *bench // the router of this life
	life  int
	ended chan struct{}
	ready chan struct{}
}

func (l *ledger) failf(format string, args ...any) {
	l.wrong = errors.Join(l.wrong, fmt.Errorf("life %d: "+format, append([]any{l.life}, args...)...))
}

func (l *ledger) routes() []pipeline.Route {
	keyed := func(_ context.Context, d *event.Delta) (string, error) {
		version, err := strconv.Atoi(d.Object().ResourceVersion())
		return strconv.Itoa(version / 2 % 3), err
	}
	routes := []pipeline.Route{
		{Name: "every"},
		{Name: "every troubled", Handler: handler(l.luck.troubled)},
		{Name: "every keyed", Key: keyed},
		{Name: "every block", Overflow: pipeline.Block, Capacity: 2},
		{Name: "every unready", Ready: l.ready, Key: keyed},
		{Name: "net latest", Deliver: pipeline.Latest},
		{Name: "net latest keyed", Deliver: pipeline.Latest, Key: keyed},
		{Name: "net fold", Capacity: 2, Handler: handler(l.luck.troubled)},
		{Name: "net unready", Capacity: 2, Ready: l.ready},
	}
	for i := range routes {
		r := &routes[i]
		r.Batch, r.Concurrency, r.Retry.Attempts = l.p.batch, l.p.workers, 1000
		r.Filter = filters.Func(func(_ context.Context, d *event.Delta) (bool, error) { return d.Key().Name != "d", nil })
		for n, w := range []*wire{{}, {slow: 2 * time.Second}, {fails: true}} {
			name := fmt.Sprint(r.Name, " ", n)
			if l.receivers[name] == nil {
				l.receivers[name] = &receiver{done: map[change]bool{}}
			}
			w.t, w.to, w.luck, w.ended = l.t, l.receivers[name], l.luck, l.ended
			r.Sinks = append(r.Sinks, pipeline.NamedSink{Name: name, Sink: w})
		}
		turn := l.luck.upTo(3) // their order in the configuration may have changed
		r.Sinks = append(r.Sinks[turn:], r.Sinks[:turn]...)
	}
	return routes
}

// begin starts the router with what is on disk, and puts through again what the disk does not know of, as a watch does.
func (l *ledger) begin() {
	l.life++
	l.ended, l.ready = make(chan struct{}), make(chan struct{})
	for _, r := range l.receivers {
		for _, c := range r.took[r.born:r.acked] {
			r.done[c] = true
		}
		r.born, r.quiet, r.acked = len(r.took), len(r.took), len(r.took)
	}
	routes := l.routes()
	l.b = openAs(l.t, pipeline.Config{Durable: true}, routes...)
	for _, r := range routes {
		if err := l.b.Restore(r.Name, l.disk.owed(r.Name)); err != nil {
			l.failf("%w", err)
		}
	}
	l.b.Start(l.t.Context())
	for _, d := range l.sent[l.written:] {
		again := *d
		again.Selective = true // it may have been delivered before the crash
		l.admit(&again)
	}
}

// admit puts a delta through. The identity of its object is on disk a little later.
func (l *ledger) admit(d *event.Delta) {
	gate := make(chan struct{})
	time.AfterFunc(10*time.Millisecond, func() { close(gate) })
	d.Durable = gate
	l.b.admit(d)
}

// cut writes the disk.
func (l *ledger) cut() {
	l.disk.write(l.t, l.b.Dirty())
	l.written = len(l.sent)
	for _, r := range l.receivers {
		r.acked = r.quiet
	}
}

// settle waits until nothing is in flight.
func (l *ledger) settle(d time.Duration) {
	pass(d)
	for _, r := range l.receivers {
		r.mu.Lock()
		r.quiet = len(r.took)
		r.mu.Unlock()
	}
}

// end ends this life of the router: abruptly, or in good order.
func (l *ledger) end(crash bool) {
	if crash {
		close(l.ended)
	} else {
		ctx, cancel := context.WithTimeout(l.t.Context(), time.Second)
		defer cancel()
		_ = l.b.Drain(ctx) // what it could not deliver is owed
	}
	if err := l.b.Close(l.t.Context()); err != nil {
		l.failf("%w", err)
	}
	if !crash {
		l.settle(0)
		l.cut()
	}
	l.judge()
}

// judge says what is wrong with what was taken in this life.
func (l *ledger) judge() {
	for name, r := range l.receivers {
		last := map[string]int{}
		for _, c := range r.took[r.born:] {
			if r.done[c] {
				l.failf("sink %s: %v was done before the restart", name, c)
			}
			if version := max(c.old, c.new); version <= last[c.name] {
				l.failf("sink %s: %v came after version %d", name, c, last[c.name])
			} else {
				last[c.name] = version
			}
		}
	}
}

// finish delivers the rest and judges the whole.
func (l *ledger) finish() {
	select {
	case <-l.ready:
	default:
		close(l.ready)
	}
	ctx, cancel := context.WithTimeout(l.t.Context(), time.Hour)
	defer cancel()
	if err := l.b.Drain(ctx); err != nil {
		l.failf("%w", err)
		return
	}
	l.cut()
	l.judge()
	want := map[change]bool{}
	for _, d := range l.sent {
		if d.Key().Name != "d" {
			want[changeOf(l.t, event.New(d, "", 0, event.Payload(d)))] = true
		}
	}
	delete(l.cluster.there, "d")
	for name, r := range l.receivers {
		got, there := map[change]bool{}, map[string]change{}
		for _, c := range r.took {
			got[c] = true
			if there[c.name] = (change{name: c.name, uid: c.uid, new: c.new}); c.new == 0 {
				delete(there, c.name)
			}
		}
		if name[:5] == "every" && !equalMaps(byChange(got), byChange(want)) {
			l.failf("sink %s took %v, want %v", name, got, want)
		}
		if !equalMaps(there, l.cluster.there) {
			l.failf("sink %s ends with %v, want %v", name, there, l.cluster.there)
		}
	}
	for _, route := range l.routes() {
		l.b.balanced(route.Name)
		if n := len(l.disk[route.Name]); n > 0 {
			l.failf("route %s owes nothing, but on disk it owes %d deltas", route.Name, n)
		}
	}
}

func byChange(set map[change]bool) map[string]bool {
	m := map[string]bool{}
	for c := range set {
		m[fmt.Sprint(c)] = true
	}
	return m
}

func (c *chance) upTo(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.r.IntN(n)
}

type crashPlan struct {
	steps   []crashStep
	batch   pipeline.Batch
	workers int
	seed    uint64
}

// crashStep is something that happens to an object, some time, and something that happens to the router.
type crashStep struct {
	kind, name string
	wait       int
	then       string
}

func (p crashPlan) run(t *testing.T) (wrong error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := &ledger{
			t: t, p: p, luck: &chance{r: rand.New(rand.NewPCG(p.seed, 0))}, cluster: &cluster{t: t, there: map[string]change{}},
			disk: disk{}, receivers: map[string]*receiver{},
		}
		l.begin()
		for _, step := range p.steps {
			for _, d := range l.cluster.step(step.kind, step.name) {
				l.sent = append(l.sent, d)
				l.admit(d)
			}
			if step.wait > 0 {
				l.settle(time.Duration(step.wait) * 100 * time.Millisecond)
			}
			switch step.then {
			case "cut":
				l.cut()
				for _, r := range l.b.Status() {
					if n := len(l.disk[r.Name]); step.wait > 0 && n != r.Owed {
						l.failf("route %s owes %d deltas, on disk %d", r.Name, r.Owed, n)
					}
				}
			case "crash", "stop":
				l.end(step.then == "crash")
				l.begin()
			case "ready":
				select {
				case <-l.ready:
				default:
					close(l.ready)
				}
			}
		}
		l.finish()
		wrong = l.wrong
	})
	return wrong
}

// TestNothingIsLostInACrash: whatever happens, and whenever the router crashes and goes on from the last cut, each delta that it owed
// then reaches each sink of each route, nothing that a sink was done with then reaches it again, and after the restart as before it
// the deltas of an object come in order.
func TestNothingIsLostInACrash(t *testing.T) {
	kinds := rapid.SampledFrom([]string{"update", "update", "update", "delete", "recreate", "deselect", "relist"})
	names := rapid.SampledFrom([]string{"a", "a", "b", "c", "d"})
	step := rapid.Custom(func(rt *rapid.T) crashStep {
		return crashStep{
			kind: kinds.Draw(rt, "kind"), name: names.Draw(rt, "name"), wait: rapid.SampledFrom([]int{0, 0, 1, 30}).Draw(rt, "wait"),
			then: rapid.SampledFrom([]string{"", "", "cut", "cut", "crash", "stop", "ready"}).Draw(rt, "then"),
		}
	})
	rapid.Check(t, func(rt *rapid.T) {
		p := crashPlan{
			steps:   rapid.SliceOfN(step, 1, 30).Draw(rt, "steps"),
			batch:   pipeline.Batch{Size: rapid.IntRange(1, 4).Draw(rt, "batch"), Wait: 10 * time.Millisecond},
			workers: rapid.IntRange(1, 3).Draw(rt, "workers"),
			seed:    rapid.Uint64().Draw(rt, "seed"),
		}
		if err := p.run(t); err != nil {
			rt.Fatal(err)
		}
	})
}
