package filters_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/internal/transit"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/filters"
	"github.com/deltarouter/deltarouter/test/effort"
	"github.com/deltarouter/deltarouter/test/leaks"
	"github.com/deltarouter/deltarouter/test/must"
)

func TestMain(m *testing.M) { leaks.Main(m) }

func delta(t testing.TB, source string, op event.Op, name string) *event.Delta {
	t.Helper()
	o, err := event.ParseObject(&event.Resource{Cluster: "c"}, `{"metadata":{"namespace":"default","name":"`+name+`","uid":"u","resourceVersion":"1"}}`)
	must.Succeed(t, err)
	d := &event.Delta{Source: source, Op: op}
	if op == event.Deleted || op == event.Deselected {
		d.Old = o
	} else {
		d.New = o
	}
	return d
}

func named(name string) filters.Filter {
	return filters.Func(func(_ context.Context, d *event.Delta) (bool, error) { return d.Key().Name == name, nil })
}

var errFilter = errors.New("no such overload")

// TestBorn: objects of a watch that was added later are not new to an older route.
func TestBorn(t *testing.T) {
	table := filters.NewTable([]filters.Entry{
		{Sources: []string{"pods"}, Ops: event.Ops(), Existing: true, Born: 1}, {Sources: []string{"pods"}, Ops: event.Ops(), Existing: true, Born: 2},
	})
	for epoch, want := range []int{2, 2, 1, 0} {
		d := delta(t, "pods", event.Added, "a")
		d.Initial, transit.Of(d).Epoch = true, epoch
		if got := table.Match(t.Context(), d, nil); len(got) != want {
			t.Errorf("epoch %d: %d routes want it, want %d", epoch, len(got), want)
		}
	}
	if got := table.Match(t.Context(), delta(t, "pods", event.Added, "a"), nil); len(got) != 2 {
		t.Errorf("%d routes want what is really new", len(got))
	}
}

func TestTable(t *testing.T) {
	failing := filters.Func(func(context.Context, *event.Delta) (bool, error) { return true, errFilter })
	closed := make(chan struct{})
	close(closed)
	table := filters.NewTable([]filters.Entry{
		0: {Sources: []string{"pods"}, Ops: []event.Op{event.Added, event.Updated, event.Deleted}},
		1: {Sources: []string{"pods", "nodes"}, Ops: []event.Op{event.Updated, event.Updated}, Filter: named("a")},
		2: {Sources: []string{"nodes"}, Ops: event.Ops(), Filter: failing, Existing: true},
		3: {Sources: []string{"pods", "pods"}, Ops: []event.Op{event.Deselected}, Filter: named("a"), Ready: make(chan struct{})},
		4: {Sources: []string{"pods"}, Ops: []event.Op{event.Deselected}, Filter: named("a"), Ready: closed},
	})
	tests := map[string]struct {
		source, name string
		op           event.Op
		initial      bool
		want         []filters.Match
	}{
		"unknown source":  {source: "secrets", op: event.Added},
		"unknown op":      {source: "pods", op: event.Sync + 1},
		"no op":           {source: "pods"},
		"no filter":       {source: "pods", op: event.Deleted, want: []filters.Match{{Entry: 0, Verdict: filters.Matched}}},
		"both":            {source: "pods", op: event.Updated, name: "a", want: []filters.Match{{Entry: 0, Verdict: filters.Matched}, {Entry: 1, Verdict: filters.Matched}}},
		"filtered":        {source: "pods", op: event.Updated, name: "b", want: []filters.Match{{Entry: 0, Verdict: filters.Matched}, {Entry: 1}}},
		"failed":          {source: "nodes", op: event.Updated, name: "a", want: []filters.Match{{Entry: 1, Verdict: filters.Matched}, {Entry: 2, Verdict: filters.Failed, Err: errFilter}}},
		"initial":         {source: "nodes", op: event.Added, initial: true, want: []filters.Match{{Entry: 2, Verdict: filters.Failed, Err: errFilter}}},
		"initial skipped": {source: "pods", op: event.Added, initial: true},
		"unready":         {source: "pods", op: event.Deselected, name: "b", want: []filters.Match{{Entry: 3, Verdict: filters.Unready}, {Entry: 4}}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if test.name == "" {
				test.name = "x"
			}
			d := delta(t, test.source, test.op, test.name)
			d.Initial = test.initial
			if got := table.Match(t.Context(), d, nil); !slices.Equal(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

func TestEvaluateDoesNotWait(t *testing.T) {
	table := filters.NewTable([]filters.Entry{{Sources: []string{"pods"}, Ops: event.Ops(), Filter: named("a"), Ready: make(chan struct{})}})
	if m := table.Evaluate(t.Context(), 0, delta(t, "pods", event.Added, "a")); m.Verdict != filters.Matched {
		t.Errorf("got %v", m)
	}
}

func TestPanicFails(t *testing.T) {
	table := filters.NewTable([]filters.Entry{{
		Sources: []string{"pods"}, Ops: event.Ops(),
		Filter: filters.Func(func(context.Context, *event.Delta) (bool, error) { panic("boom") }),
	}})
	got := table.Match(t.Context(), delta(t, "pods", event.Added, "a"), nil)
	if len(got) != 1 || got[0].Verdict != filters.Failed || got[0].Err == nil {
		t.Errorf("got %v", got)
	}
}

func TestNoAllocation(t *testing.T) {
	table := filters.NewTable([]filters.Entry{
		{Sources: []string{"pods"}, Ops: event.Ops(), Filter: named("a")},
		{Sources: []string{"pods"}, Ops: event.Ops(), Filter: named("b"), Ready: make(chan struct{})},
	})
	d, ctx := delta(t, "pods", event.Added, "c"), t.Context()
	buffer := make([]filters.Match, 0, 2)
	if n := testing.AllocsPerRun(100, func() { buffer = table.Match(ctx, d, buffer[:0]) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if len(buffer) != 2 {
		t.Errorf("got %v", buffer)
	}
}

// TestTurningDownIsFree: a delta that equalities exclude costs no allocation, with and without the
// field, in few routes and in many.
func TestTurningDownIsFree(t *testing.T) {
	if effort.Race {
		t.Skip("the race detector allocates")
	}
	for _, routes := range []int{1, 20} {
		var entries []filters.Entry
		for range routes {
			for _, text := range []string{`object.metadata.name == "b" && changed("spec")`, `object.metadata.labels.app == "x"`, `op == "deleted"`} {
				entries = append(entries, filters.Entry{Sources: []string{"pods"}, Ops: event.Ops(), Filter: filters.NewCEL(filters.CELConfig{Program: compile(t, text)})})
			}
		}
		entries = append(entries, filters.Entry{Sources: []string{"pods"}, Ops: event.Ops(), Filter: filters.NewCEL(filters.CELConfig{Program: compile(t, `object.metadata.name == "c"`)})})
		table, d, ctx := filters.NewTable(entries), delta(t, "pods", event.Added, "c"), t.Context()
		buffer := make([]filters.Match, 0, 2)
		if n := testing.AllocsPerRun(100, func() { buffer = table.Match(ctx, d, buffer[:0]) }); n != 0 {
			t.Errorf("%d routes: %v allocations", len(entries), n)
		}
		if len(buffer) != 1 || buffer[0] != (filters.Match{Entry: len(entries) - 1, Verdict: filters.Matched}) {
			t.Errorf("%d routes: got %v", len(entries), buffer)
		}
	}
}

// TestBudget: the cost of all filters for one delta is limited. Filters beyond the limit fail,
// filters that a look-up decides do not, and the next delta has a new budget.
func TestBudget(t *testing.T) {
	// Guarantee: cost-bounded, filters-too-expensive
	if effort.Race {
		t.Skip("the race detector makes expressions many times slower")
	}
	const routes = 40
	entry := func(text string, ops ...event.Op) filters.Entry {
		return filters.Entry{Sources: []string{"pods"}, Ops: ops, Filter: filters.NewCEL(filters.CELConfig{Program: compile(t, text)})}
	}
	var entries []filters.Entry
	for i := range routes {
		// no two are equal
		text := fmt.Sprintf(`lists.range(900).all(a, lists.range(%d).all(b, b >= 0))`, 100+i)
		entries = append(entries, entry(text, event.Added))
	}
	entries = append(entries, entry(`object.metadata.name == "a"`, event.Added), entry(`lists.range(100).all(a, lists.range(100).all(b, b >= 0))`, event.Added, event.Updated))
	table := filters.NewTable(entries)
	matched, failed := 0, 0
	for _, m := range table.Match(t.Context(), delta(t, "pods", event.Added, "a"), nil) {
		switch {
		case m.Verdict == filters.Matched:
			matched++
		case errors.Is(m.Err, cel.ErrCost):
			failed++
		default:
			t.Error(m)
		}
		if m.Entry == routes && m.Verdict != filters.Matched || m.Entry == routes+1 && m.Verdict != filters.Failed {
			t.Error("what is looked up costs nothing, and what comes last is too late", m)
		}
	}
	if matched < 10 || failed < 10 || matched+failed != routes+2 {
		t.Errorf("%d matched and %d failed", matched, failed)
	}
	if m := table.Match(t.Context(), delta(t, "pods", event.Updated, "a"), nil); len(m) != 1 || m[0].Verdict != filters.Matched {
		t.Error("the next delta", m)
	}
}

// TestEnters: Enters is true if the filter wants the delete of the new state and not of the old
// one.
func TestEnters(t *testing.T) {
	// Guarantee: delete-has-state
	object := func(text string) *event.Object {
		o, err := event.ParseObject(&event.Resource{}, `{"metadata":{"name":"a","uid":"u","resourceVersion":"1"},"spec":`+text+`}`)
		must.Succeed(t, err)
		return o
	}
	hot, cold, bare := object(`{"hot":"yes"}`), object(`{"hot":"no"}`), object(`{}`)
	all := []event.Op{event.Added, event.Updated, event.Deleted}
	for _, test := range []struct {
		filter   string
		ops      []event.Op
		old, now *event.Object
		want     bool
	}{
		{`object.spec.hot == "yes"`, all, cold, hot, true},
		{`object.spec.hot == "yes"`, all, bare, hot, true},
		{`object.spec.hot == "yes"`, all, hot, hot, false},
		{`object.spec.hot == "yes"`, all[:2], cold, hot, false},
		{`object.spec.hot.startsWith("y")`, all, bare, hot, true},
		{`object.spec.hot.startsWith("y")`, all, hot, hot, false},
		{`op == "updated" && object.spec.hot.startsWith("y")`, all, cold, hot, false},
		{`changed("spec.hot")`, all, cold, hot, false},
	} {
		program := compile(t, test.filter)
		table := filters.NewTable([]filters.Entry{{Sources: []string{"pods"}, Ops: test.ops, Filter: filters.NewCEL(filters.CELConfig{Program: program, Absent: func(uint64) { t.Error("counted") }})}})
		d := &event.Delta{Source: "pods", Op: event.Updated, Old: test.old, New: test.now}
		var budget filters.Budget
		if got := table.Enters(t.Context(), 0, d, &budget); got != test.want {
			t.Errorf("%s, from %s to %s: %v", test.filter, test.old.JSON(), test.now.JSON(), got)
		}
		d.Op = event.Added
		if table.Enters(t.Context(), 0, d, &budget) {
			t.Errorf("%s: what is added enters", test.filter)
		}
	}
}
