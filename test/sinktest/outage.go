package sinktest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/pipeline"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
	"github.com/deltarouter/deltarouter/test/must"
)

// Outage is a time in which the server of a sink is unavailable. The sink is that of the route
// `alone` and one of two of the route `both`; the route `other` does not use it.
type Outage struct {
	Sink plugins.Sink
	Why  string // part of the reason that the host gets
	// Before makes the server unavailable after a third of the deltas; nil: it is unavailable from
	// the beginning.
	Before func()
	After  func() // makes it available again
	Large  int    // approximate size in bytes of an event that the sink rejects
}

// counts counts the events of a sink in memory, by route and subject.
type counts struct {
	mu  sync.Mutex
	all map[string]int
}

// Write implements [plugins.Sink].
func (c *counts) Write(_ context.Context, events []event.Event) []error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range events {
		c.all[events[i].Route+" "+events[i].Subject]++
	}
	return nil
}

// Close implements [plugins.Sink].
func (*counts) Close(context.Context) error { return nil }

func (c *counts) len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.all)
}

// Letters keeps dead letters.
type Letters struct {
	mu  sync.Mutex
	all []checkpoint.Letter
}

// Add implements [deliver.DeadLetterer].
func (l *Letters) Add(_ context.Context, all []checkpoint.Letter) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, all...)
	return nil
}

// Remove implements [deliver.DeadLetterer].
func (*Letters) Remove(context.Context, []uint64) (int, error) { return 0, nil }

// Run sends n deltas to each route. While the server is unavailable the route `other`, and the
// other sink of `both`, must get all, and the pipeline must name the sink, as /readyz does. When it
// is available again all other events must be delivered, except one that is too large, which
// becomes two dead letters, one of each route. It returns the events that the server must have, as
// "route namespace/name".
func (o *Outage) Run(t *testing.T, n int) (want []string) {
	t.Helper()
	other, dead := &counts{all: map[string]int{}}, &Letters{}
	bus, memory := spec.NamedSink{Name: "bus", Sink: o.Sink}, spec.NamedSink{Name: "memory", Sink: other}
	c := pipeline.Config{DeadLetters: dead}
	for name, sinks := range map[string][]spec.NamedSink{"alone": {bus}, "both": {bus, memory}, "other": {memory}} {
		c.Routes = append(c.Routes, spec.Settings{
			Name: name, Sources: []string{"pods"}, Ops: event.Ops(), Batch: spec.Batch{Size: 8}, Concurrency: 2, Sinks: sinks,
			Retry: spec.Retry{Backoff: time.Millisecond, Max: 20 * time.Millisecond},
		})
	}
	p, err := pipeline.New(c)
	must.Succeed(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	p.Start(ctx)
	defer func() { must.Report(t, p.Close(context.WithoutCancel(ctx))) }()
	large := n / 2
	for i := range n {
		if i == n/3 && o.Before != nil {
			o.Before()
		}
		name, size := fmt.Sprintf("p%d", i), 10
		if i == large {
			size = o.Large
		} else {
			want = append(want, "alone default/"+name, "both default/"+name)
		}
		commit, err := p.Admit(ctx, &event.Delta{Source: "pods", Op: event.Added, New: plugintest.Pod(t, name, i+1, size), Seen: time.Now()})
		must.Succeed(t, err)
		commit.Commit()
	}
	Until(t, "the backlogs of the other routes", func() bool { return other.len() == 2*n })
	var down []pipeline.SinkStatus
	if !Until(t, "that the sink is named", func() bool {
		down = p.Unavailable()
		return len(down) == 1 && down[0].Name == "bus" && strings.Contains(down[0].Reason, o.Why)
	}) {
		t.Logf("unavailable: %v", down)
	}
	if p.Pending("alone") == 0 || p.Pending("both") == 0 || p.Pending("other") != 0 {
		t.Errorf("pending: %d, %d, and %d by the route that has nothing to do with it", p.Pending("alone"), p.Pending("both"), p.Pending("other"))
	}
	o.After()
	must.Report(t, p.Drain(ctx))
	if down = p.Unavailable(); len(down) != 0 {
		t.Errorf("still called unavailable: %v", down)
	}
	for of, times := range other.all {
		if times != 1 {
			t.Errorf("%s came %d times to the other sink", of, times)
		}
	}
	dead.check(t, fmt.Sprintf("p%d", large))
	return want
}

// check tests that there is a dead letter of each of the two routes, about an object of that name.
func (l *Letters) check(t *testing.T, name string) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	routes := map[string]int{}
	for _, letter := range l.all {
		routes[letter.Route]++
		if letter.Delta.Key().Name != name {
			t.Errorf("%s is a dead letter: %s", letter.Delta, letter.Error)
		}
	}
	if len(l.all) != 2 || routes["alone"] != 1 || routes["both"] != 1 {
		t.Errorf("%d dead letters: %v", len(l.all), routes)
	}
}

// Compare tests that got equals want in any order, without repetitions.
func Compare(t testing.TB, got, want []string) {
	t.Helper()
	balance := map[string]int{}
	for _, s := range want {
		balance[s]--
	}
	for _, s := range got {
		balance[s]++
	}
	for s, n := range balance {
		switch {
		case n < 0:
			t.Errorf("%s is missing", s)
		case n > 0:
			t.Errorf("%s is there %d times too often", s, n)
		}
	}
}

// Twice returns the repeated entries of got, one for each repetition.
func Twice(got []string) (again []string) {
	seen := map[string]bool{}
	for _, s := range got {
		if seen[s] {
			again = append(again, s)
		}
		seen[s] = true
	}
	return again
}
