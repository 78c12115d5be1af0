// Package budgets compares the memory that the router allocates for a delta with the budgets in
// testdata/budgets.txt. A whole router runs there in a bubble of testing/synctest, on one core and
// without garbage collection: the figures are exact, and do not depend on the load of the machine.
//
// A change that allocates more has to raise a budget, one that allocates less has to lower it; both
// are then visible in its commit:
//
//	go test ./test/budgets -update
package budgets_test

import (
	"flag"
	"fmt"
	"path/filepath"
	"runtime"
	"testing"
	"testing/synctest"

	"github.com/deltarouter/deltarouter/test/effort"
	"github.com/deltarouter/deltarouter/test/leaks"
	"github.com/deltarouter/deltarouter/test/must"
)

var update = flag.Bool("update", false, "write the budgets anew")

func TestMain(m *testing.M) { leaks.Main(m) }

// tolerance is the part by which a figure may differ from its budget, in both directions.
const tolerance = 0.02

// The amount of work.
const (
	pods   = 1000 // each is updated once in a round
	warmUp = 3    // rounds until all pools and slices have their size
	rounds = 5
	starts = 3
)

// work is what a budget is for.
type work struct {
	name   string
	config string
	events int    // that the sink gets of a delta
	beyond string // the work whose allocations are not counted; empty: none
}

func works(t *testing.T) []work {
	t.Helper()
	module, err := filepath.Abs("../../sdk/conformance/c/summary.wasm")
	must.Succeed(t, err)
	const (
		filter = `filter: 'object.status.phase == "Running" && object.metadata.labels.team == "payments" && changed("status.containerStatuses")'`
		emit   = `emit: '{"name": object.metadata.name, "node": object.spec.nodeName, "restarts": object.status.containerStatuses[0].restartCount}'`
	)
	return []work{
		{"ingest", route("ops: deleted"), 0, ""},
		{"queue", route("ops: updated"), 1, "ingest"},
		{"filter", route("ops: updated, " + filter), 1, "queue"},
		{"emit", route("ops: updated, " + emit), 1, "ingest"},
		{"guest", fmt.Sprintf("handlers: {h: {wasm: {module: %q, config: {note: users}}}}\n", module) + route("ops: updated, handler: h"), 1, "ingest"},
		{"new", fmt.Sprintf("state: {dir: %q}\n", t.TempDir()) + route("ops: added"), 1, ""}, // objects
		{"checkpoint", fmt.Sprintf("state: {dir: %q}\n", t.TempDir()) + route("ops: deleted"), 0, "ingest"},
	}
}

// TestBudgets: the router allocates for a delta what the budgets say.
func TestBudgets(t *testing.T) {
	if effort.Race {
		t.Skip("the race detector allocates, and empties pools at random")
	}
	quiet(t)
	got := map[string]usage{}
	for _, w := range works(t) {
		got[w.name] = w.measure(t)
	}
	var found []budget
	for _, w := range works(t) {
		found = append(found, budget{w.name, got[w.name].minus(got[w.beyond])})
	}
	found = append(found, budget{"restart", restart(t)}, budget{"post", posts(t)})
	settle(t, found)
}

// measure returns the allocations for one update of a pod.
func (w work) measure(t *testing.T) usage {
	t.Helper()
	runtime.GC()
	file := write(t, w.config)
	busy, idle := most(), most()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, pods)
		s.creates = w.name == "new"
		l := begin(t, file, s)
		for range warmUp {
			l.update(pods)
		}
		for range rounds {
			busy = busy.least(of(func() { l.update(pods) }))
			idle = idle.least(of(func() { l.update(0) }))
		}
		l.stop()
		if got, want := int(l.sink.events.Load()), w.events*pods*(warmUp+rounds); got != want {
			t.Fatalf("%s: the sink has %d events of %d", w.name, got, want)
		}
	})
	return busy.minus(idle).over(pods)
}

// restart returns the allocations for one saved object when the router starts.
func restart(t *testing.T) usage {
	t.Helper()
	return start(t, 3*pods).minus(start(t, pods)).over(2 * pods)
}

// start returns the allocations of a start with a number of saved objects.
func start(t *testing.T, objects int) usage {
	t.Helper()
	runtime.GC()
	file := write(t, fmt.Sprintf("state: {dir: %q}\n", t.TempDir())+route("ops: updated"))
	least, version := most(), objects
	for run := range 1 + starts {
		synctest.Test(t, func(t *testing.T) {
			var l *life
			s := newServer(t, objects)
			s.version = version
			used := of(func() { l = begin(t, file, s) })
			if run > 0 {
				least = least.least(used)
			}
			l.update(1) // a router that has lost its watch would not get it
			l.stop()
			version = s.version
			if s.listed > 0 != (run == 0) || l.sink.events.Load() != 1 {
				t.Fatalf("start %d: the objects were listed %d times, and %d events came", run, s.listed, l.sink.events.Load())
			}
		})
	}
	return least
}
