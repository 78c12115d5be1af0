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

	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/filters"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// receiver is the receiver behind a sink: it survives the router.
type receiver struct {
	mu   sync.Mutex
	took []change
	seen []time.Time // when each delta was seen first, and
	at   []time.Time // when it came
	cut  int         // the number of deltas before the last cut
	// deltas after the last cut of a life that crashed: no later life has them on record
	lost map[int]bool
	// born is the number of deltas at the start of the router, quiet the number when nothing was in
	// flight the last time, acked the value of quiet at the last cut.
	born, quiet, acked int
	done               map[change]bool // by the end of the previous life
}

// receiverSink is a sink of one life of the router. It passes nothing after the end of that life.
type receiverSink struct {
	t        *testing.T
	receiver *receiver
	faults   *faults
	slow     time.Duration
	fails    bool
	ended    <-chan struct{}

	inOrder bool
}

// Write implements plugins.Sink.
func (w *receiverSink) Write(ctx context.Context, events []event.Event) []error {
	if w.slow > 0 {
		w.faults.sleep(w.slow)(ctx)
	}
	w.receiver.mu.Lock()
	defer w.receiver.mu.Unlock()
	errs, refused := make([]error, len(events)), map[string]bool{}
	for i, e := range events {
		if w.inOrder && refused[e.OrderKey()] {
			errs[i] = errDown
			continue
		}
		select {
		case <-w.ended:
			errs[i] = errDown
			continue
		default:
		}
		if w.fails {
			errs[i] = w.faults.refuse(e)
			refused[e.OrderKey()] = errs[i] != nil
		}
		if errs[i] == nil {
			w.receiver.took = append(w.receiver.took, changeOf(w.t, e))
			w.receiver.seen, w.receiver.at = append(w.receiver.seen, e.Time), append(w.receiver.at, time.Now())
		}
	}
	return errs
}

// Close implements plugins.Sink.
func (w *receiverSink) Close(context.Context) error { return nil }

// crashModel is the world around the router: the changes of the cluster, the disk, and the
// receivers.
type crashModel struct {
	t         *testing.T
	p         crashPlan
	faults    *faults
	cluster   *cluster
	sent      []*event.Delta
	store     *flakyStore
	source    sync.Mutex
	committed int // the number of deltas of sent that were admitted in this life, or before
	written   int // the number of deltas of sent that are on disk
	receivers map[string]*receiver
	wrong     error

	b     *harness // the router of this life
	life  int
	ended chan struct{}
	ready chan struct{}
}

func (l *crashModel) failf(format string, args ...any) {
	l.wrong = errors.Join(l.wrong, fmt.Errorf("life %d: "+format, append([]any{l.life}, args...)...))
}

func (l *crashModel) routes() []spec.Settings {
	keyed := func(_ context.Context, d *event.Delta) (string, error) {
		version, err := strconv.Atoi(d.Object().ResourceVersion())
		return strconv.Itoa(version / 2 % 3), err
	}
	routes := []spec.Settings{
		{Name: "every"},
		{Name: "every troubled", Handler: handlerFunc(l.faults.troubled)},
		{Name: "every keyed", Key: keyed},
		{Name: "every block", Overflow: spec.Block, Capacity: 2},
		{Name: "every unready", Ready: l.ready, Key: keyed},
		{Name: "net latest", Deliver: spec.Latest},
		{Name: "net latest keyed", Deliver: spec.Latest, Key: keyed},
		{Name: "net fold", Capacity: 2, Handler: handlerFunc(l.faults.troubled)},
		{Name: "net unready", Capacity: 2, Ready: l.ready},
		{Name: "net unready latest", Deliver: spec.Latest, Ready: l.ready},
		{Name: "every spilled", Overflow: spec.Block, Capacity: 2, Disk: 1 << 20},
		{Name: "every spilled keyed", Overflow: spec.Block, Capacity: 3, Disk: 1 << 20, Key: keyed, Handler: handlerFunc(l.faults.troubled)},
		{Name: "every spilled block", Overflow: spec.Block, Capacity: 1, Disk: 3 * entryBytes},
		{Name: "net spilled", Capacity: 2, Disk: 4 * entryBytes, Handler: handlerFunc(l.faults.troubled)},
		{Name: "net spilled latest", Capacity: 1, Disk: 1 << 20, Deliver: spec.Latest},
		{Name: "net spilled unready", Capacity: 1, Disk: 4 * entryBytes, Key: keyed, Ready: l.ready},
		{Name: "lossy spilled", Capacity: 2, Disk: 4 * entryBytes, Overflow: spec.DropOldest},
		{Name: "net quiet", Debounce: spec.Debounce{Quiet: 300 * time.Millisecond, Max: 2 * time.Second}},
		{Name: "net quiet spilled", Debounce: spec.Debounce{Quiet: time.Second}, Capacity: 2, Disk: 1 << 20, Key: keyed, Handler: handlerFunc(l.faults.troubled)},
		{Name: "every grouped", Grouped: true, Joint: true, Key: keyed, Handler: handlerFunc(l.faults.joint)},
		{Name: "every grouped spilled", Grouped: true, Joint: true, Key: keyed, Handler: handlerFunc(l.faults.joint), Capacity: 2, Disk: 1 << 20, Overflow: spec.Block},
		{Name: "lossy limited", Limit: limited},
		{Name: "lossy limited unready", Limit: limited, Ready: l.ready},
		{Name: "every upstream", Overflow: spec.Block, Capacity: 2, Disk: 1 << 20, Sinks: downstream("every downstream", "every downstream troubled", "every downstream unready", "lossy downstream")},
		{Name: "every downstream", Downstream: true, Capacity: 2, Deliver: spec.Latest},
		{Name: "every downstream troubled", Downstream: true, Capacity: 1, Disk: 1 << 20, Handler: handlerFunc(l.faults.troubled), Sinks: downstream("every downstream last")},
		{Name: "every downstream unready", Downstream: true, Capacity: 3, Ready: l.ready, Key: keyed},
		{Name: "every downstream last", Downstream: true, Disk: 3 * entryBytes},
		{Name: "lossy downstream", Downstream: true, Capacity: 2, Overflow: spec.DropOldest},
		{Name: "lossy quiet limited", Limit: limited, Debounce: spec.Debounce{Quiet: time.Second}},
	}
	for i := range routes {
		r := &routes[i]
		r.Batch, r.Concurrency, r.Retry.Attempts = l.p.batch, l.p.workers, 1000
		r.Filter = filters.Func(func(_ context.Context, d *event.Delta) (bool, error) { return d.Key().Name != "d", nil })
		wires := []*receiverSink{{}, {slow: 2 * time.Second}, {fails: true}}
		if r.Joint { // the refused events of a group come after the others
			wires, r.Batch.Wait = wires[:2], 500*time.Millisecond
		} else if r.Limit.Every > 0 { // the deltas that pass come at once
			wires = wires[:1]
		}
		inOrder := l.faults.oneIn(2)
		for n, w := range wires {
			w.inOrder = inOrder
			name := fmt.Sprint(r.Name, " ", n)
			if l.receivers[name] == nil {
				l.receivers[name] = &receiver{done: map[change]bool{}}
			}
			w.t, w.receiver, w.faults, w.ended = l.t, l.receivers[name], l.faults, l.ended
			r.Sinks = append(r.Sinks, spec.NamedSink{Name: name, Sink: w, InOrder: w.inOrder})
		}
		turn := l.faults.upTo(len(r.Sinks)) // their order in the configuration may have changed
		r.Sinks = append(r.Sinks[turn:], r.Sinks[:turn]...)
	}
	return routes
}

// limited is the limit of the limited routes: all objects but one share a key.
var limited = spec.Limit{
	Every: 2 * time.Second, Burst: 2,
	Key: func(_ context.Context, d *event.Delta) (string, error) {
		if d.Key().Name == "a" {
			return "a", nil
		}
		return "others", nil
	},
}

// withinLimit checks the times at which the changes of a key came first: each passed between its
// being seen and its arrival. Changes after the last cut of a life that crashed are not counted,
// because the limit continues from the cut.
func (l *crashModel) withinLimit(name string, r *receiver) {
	first, known := map[string][]time.Time{}, map[change]bool{}
	for i, c := range r.took {
		if known[c] || r.lost[i] {
			continue
		}
		known[c] = true
		key := "others"
		if c.name == "a" {
			key = "a"
		}
		for n, seen := range first[key] {
			if came, most := len(first[key])-n+1, limited.Burst+int(r.at[i].Sub(seen)/limited.Every); came > most {
				l.failf("sink %s: %d changes of %s in %v, at most %d may come", name, came, key, r.at[i].Sub(seen), most)
			}
		}
		first[key] = append(first[key], r.seen[i])
	}
}

// joint is like troubled for groups: the last delta has an event for each.
func (c *faults) joint(_ context.Context, batch []*event.Delta) ([]plugins.Result, error) {
	if c.oneIn(12) {
		return nil, errors.New("out of sorts")
	}
	results := make([]plugins.Result, len(batch))
	last := &results[len(batch)-1]
	if c.oneIn(6) {
		*last = plugins.Result{Verdict: plugins.Retry, Err: plugins.RetryLater(errDown, time.Second)}
		return results, nil
	}
	for _, d := range batch {
		last.Events = append(last.Events, plugins.Emit{Data: event.Payload(d)})
	}
	return results, nil
}

func byChange(set map[change]bool) map[string]bool {
	m := map[string]bool{}
	for c := range set {
		m[fmt.Sprint(c)] = true
	}
	return m
}

func (c *faults) upTo(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.r.IntN(n)
}

type crashPlan struct {
	steps   []crashStep
	batch   spec.Batch
	workers int
	seed    uint64

	inFlight int64
	crashes  bool // otherwise a crashing step stops the router
}

// crashStep is a change of an object, some time, and an action on the router.
type crashStep struct {
	kind, name string
	wait       int
	then       string
}

func (p crashPlan) run(t *testing.T) (wrong error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := &crashModel{
			t: t, p: p, faults: &faults{r: rand.New(rand.NewPCG(p.seed, 0))}, cluster: &cluster{t: t, there: map[string]change{}},
			store: &flakyStore{fakeStore: fakeStore{}}, receivers: map[string]*receiver{},
		}
		l.store.faults = l.faults
		l.begin()
		for _, step := range p.steps {
			for _, d := range l.cluster.step(step.kind, step.name) {
				l.sent = append(l.sent, d)
				l.admit(d)
			}
			if step.wait > 0 {
				l.waitIdle(time.Duration(step.wait) * 100 * time.Millisecond)
			}
			switch step.then {
			case "cut":
				// after a cut the routes continue, so their backlogs shrink
				before := l.b.Status()
				l.cut()
				for _, r := range before {
					if n := len(l.store.fakeStore[r.Name]); step.wait > 0 && n != r.Pending {
						l.failf("route %s has %d pending deltas, on disk %d", r.Name, r.Pending, n)
					}
				}
				for _, r := range l.b.Status() {
					if n := r.Pending - r.OnDisk; n > 3 && (r.Name == "every spilled" || r.Name == "every spilled keyed") {
						l.failf("route %s has %d deltas in memory", r.Name, n)
					}
				}
			case "crash", "stop":
				l.end(step.then == "crash" && p.crashes)
				l.begin()
			case "reload":
				l.reload()
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

// TestNothingIsLostInACrash is the crash model of the queue and of delivery: with any changes of
// the objects, any faults of sinks and handlers, and any crash of the router, which continues from
// the last cut, each pending delta of the cut reaches each sink of each route, no delta that a sink
// had taken reaches it again, and the deltas of an object come in order. Routes that coalesce end
// with the state of the cluster, by changes that fit each other as long as the router does not
// crash.
//
// Two other models cover what this one cannot: TestChainExactlyOnceInACrash writes cuts at any
// moment of a hand-over between routes, TestConditionsSurvive has rules about time and a wall clock
// that jumps.
func TestNothingIsLostInACrash(t *testing.T) {
	// Guarantee: object-order, key-order-in-batch, backlog-on-disk, limit, backlog-kept
	// Guarantee: chain-kept, limit-kept, goroutine-per-event
	kinds := rapid.SampledFrom([]string{"update", "update", "update", "delete", "recreate", "deselect", "sync", "relist"})
	names := rapid.SampledFrom([]string{"a", "a", "b", "c", "d"})
	step := rapid.Custom(func(rt *rapid.T) crashStep {
		return crashStep{
			kind: kinds.Draw(rt, "kind"), name: names.Draw(rt, "name"), wait: rapid.SampledFrom([]int{0, 0, 1, 30}).Draw(rt, "wait"),
			then: rapid.SampledFrom([]string{"", "", "cut", "cut", "crash", "stop", "ready", "reload"}).Draw(rt, "then"),
		}
	})
	rapid.Check(t, func(rt *rapid.T) {
		p := crashPlan{
			steps:   rapid.SliceOfN(step, 1, 30).Draw(rt, "steps"),
			batch:   spec.Batch{Size: rapid.IntRange(1, 4).Draw(rt, "batch"), Wait: 10 * time.Millisecond},
			workers: rapid.IntRange(1, 3).Draw(rt, "workers"),
			seed:    rapid.Uint64().Draw(rt, "seed"),

			inFlight: rapid.SampledFrom([]int64{2 * entryBytes, 1 << 20}).Draw(rt, "in flight"),
			crashes:  rapid.Bool().Draw(rt, "crashes"),
		}
		if err := p.run(t); err != nil {
			rt.Fatal(err)
		}
	})
}
