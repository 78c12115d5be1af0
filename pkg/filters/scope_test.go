package filters_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"pgregory.net/rapid"

	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/filters"
	"github.com/deltarouter/deltarouter/test/effort"
	"github.com/deltarouter/deltarouter/test/must"
)

// TestScopedEntries: for any entries and deltas, the table has verdicts about the entries in whose
// scope the object is, and evaluates no other filter.
func TestScopedEntries(t *testing.T) {
	// Guarantee: include-scope
	env := tableEnv(t)
	rapid.Check(t, func(rt *rapid.T) {
		var entries []filters.Entry
		var asked []int
		for i := range rapid.IntRange(1, 10).Draw(rt, "entries") {
			e := filters.Entry{Sources: []string{"pods"}, Ops: event.SourceOps()}
			if rapid.Bool().Draw(rt, "scoped") {
				e.Scope = &filters.Scope{Namespaces: rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "x", "*"}), 0, 2).Draw(rt, "namespaces")}
			}
			e.Filter = filters.Func(func(context.Context, *event.Delta) (bool, error) {
				asked = append(asked, i)
				return true, nil
			})
			if rapid.Bool().Draw(rt, "cel") {
				program, err := env.Compile(`object.metadata.namespace in ["a", "b", "c"]`, cel.Filter, "pods")
				must.Succeed(t, err)
				e.Filter = filters.NewCEL(filters.CELConfig{Program: program})
			}
			entries = append(entries, e)
		}
		table := filters.NewTable(entries)
		for range 5 {
			d := &event.Delta{Source: "pods", Op: event.Added, New: drawObject(t, rt, "pods")}
			if rapid.Bool().Draw(rt, "namespace object") {
				o, err := event.ParseObject(&event.Resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}}, `{"metadata":{"name":"x"}}`)
				must.Succeed(t, err)
				d.New = o
			}
			asked = nil
			var mentioned []int
			for _, m := range table.Match(t.Context(), d, nil) {
				mentioned = append(mentioned, m.Entry)
			}
			for i, e := range entries {
				sees := e.Scope.Sees(d.Object().Home())
				if !sees && (slices.Contains(mentioned, i) || slices.Contains(asked, i)) {
					rt.Fatalf("entry %d of %q has a verdict about %s", i, e.Scope.Namespaces, d)
				}
				if _, function := e.Filter.(filters.Func); sees && function && !slices.Contains(mentioned, i) {
					rt.Fatalf("entry %d has no verdict about %s", i, d)
				}
				asked = nil
				if m := table.Evaluate(t.Context(), i, d); !sees && (m.Verdict != filters.Filtered || len(asked) > 0) {
					rt.Fatalf("entry %d of %q alone has verdict %d about %s", i, e.Scope.Namespaces, m.Verdict, d)
				}
			}
		}
	})
}

// TestBudgetOfScope: the filters of an include do not use up the budget of the other routes for a
// delta, neither with filters of their own nor with a copy of the filter of another route.
func TestBudgetOfScope(t *testing.T) {
	// Guarantee: include-scope
	if effort.Race {
		t.Skip("the race detector makes expressions many times slower")
	}
	env := tableEnv(t)
	filter := func(text string) filters.Filter {
		program, err := env.Compile(text, cel.Filter, "pods")
		must.Succeed(t, err)
		return filters.NewCEL(filters.CELConfig{Program: program})
	}
	entry := func(scope *filters.Scope, text string) filters.Entry {
		return filters.Entry{Sources: []string{"pods"}, Ops: event.SourceOps(), Scope: scope, Filter: filter(text)}
	}
	const copied, most = `lists.range(10).all(a, a >= 0)`, 12
	var entries []filters.Entry
	for i := range most {
		expensive := fmt.Sprintf(`lists.range(1000).all(a, lists.range(%d).all(b, b >= 0))`, 900+i)
		entries = append(entries, entry(&filters.Scope{Prefix: "team", Namespaces: []string{"n"}}, expensive))
	}
	entries = append(entries, entry(&filters.Scope{Prefix: "team", Namespaces: []string{"n"}}, copied),
		entry(&filters.Scope{Prefix: "other", Namespaces: []string{"n"}}, copied), entry(nil, copied))
	table := filters.NewTable(entries)
	o, err := event.ParseObject(&event.Resource{}, `{"metadata":{"name":"x","namespace":"n"}}`)
	must.Succeed(t, err)
	verdicts := make(map[int]filters.Verdict)
	for _, m := range table.Match(t.Context(), &event.Delta{Source: "pods", Op: event.Added, New: o}, nil) {
		verdicts[m.Entry] = m.Verdict
	}
	want := []filters.Verdict{filters.Failed, filters.Matched, filters.Matched}
	if got := []filters.Verdict{verdicts[most], verdicts[most+1], verdicts[most+2]}; !slices.Equal(got, want) {
		t.Errorf("the verdicts of the same filter of the team, of another team, and of no team are %d, want %d", got, want)
	}
}

// BenchmarkScopes matches a delta against one route of each of many scopes: only one of them sees
// the object.
func BenchmarkScopes(b *testing.B) {
	env := tableEnv(b)
	program, err := env.Compile(`object.spec.node != "a"`, cel.Filter, "pods")
	must.Succeed(b, err)
	o, err := event.ParseObject(&event.Resource{}, `{"metadata":{"name":"x","namespace":"ns-7"},"spec":{"node":"b"}}`)
	must.Succeed(b, err)
	for _, n := range []int{10, 500} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var entries []filters.Entry
			for i := range n {
				entries = append(entries, filters.Entry{
					Sources: []string{"pods"}, Ops: event.SourceOps(), Scope: &filters.Scope{Namespaces: []string{fmt.Sprintf("ns-%d", i)}},
					Filter: filters.NewCEL(filters.CELConfig{Program: program}),
				})
			}
			table, d := filters.NewTable(entries), &event.Delta{Source: "pods", Op: event.Added, New: o}
			var matches []filters.Match
			b.ReportAllocs()
			for b.Loop() {
				if matches = table.Match(b.Context(), d, matches[:0]); len(matches) != 1 {
					b.Fatal(matches)
				}
			}
		})
	}
}
