package filters_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/deltarouter/deltarouter/internal/expr"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/filters"
	"github.com/deltarouter/deltarouter/test/must"
)

// conditions are the parts of the generated filters: some that a table can look up, some that it
// cannot, and some that fail.
var conditions = []string{
	`object.metadata.namespace == "a"`, `object.metadata.namespace in ["b", "c"]`, `"b" == object.metadata.namespace`,
	`object.metadata.labels["app"] == "a"`, `object.metadata.labels.app in ["a", "b", "b"]`, `object.?metadata.labels.app.orValue("b") == "b"`,
	`object.spec.node == "a"`, `object.spec.node == "b"`, `object.spec.node in ["a", "b"]`, `oldObject.spec.node == "a"`,
	`op == "updated"`, `op in ["added", "deleted"]`, `source == "pods"`, `has(object.spec.node)`, `!has(object.spec.count)`,
	`object.spec.count == 1`, `object.spec.count in [1, 2]`, `object.spec.on == true`, `object.spec.on`, `!object.spec.on`, `inTeam`,
	`object.spec.node != "a"`, `object.spec.count > 1`, `object.spec.node.startsWith("a")`, `changed("spec.node")`, `true`, `tardy`,
	`object.metadata.labels.exists(k, k == "app")`, `"a" in object.spec`, `object.spec.count + 1 == 2`, `object.spec.node == object.metadata.namespace`,
}

// values are the possible values of a field; "" omits it.
var values = []string{"", "", `"a"`, `"a"`, `"b"`, `"\u0061"`, `""`, "null", "1", "2", "1.0", "-0", "1e0", "true", "false", `{"a":1}`, `["a"]`, "12345678901234567890"}

func tableEnv(t testing.TB) *expr.Env {
	t.Helper()
	env, err := expr.NewEnv(expr.EnvConfig{
		Cluster: "c", Sources: map[string][]string{"pods": nil, "nodes": nil},
		Define: map[string]string{"inTeam": `object.metadata.namespace == "a" && object.spec.count == 1`, "tardy": `size(object.spec.node) == 1 || inTeam`},
	})
	must.Succeed(t, err)
	return env
}

// world contains the parts of routes and deltas.
type world struct {
	env     *expr.Env
	sources []string
	// conditions returns conditions for filters over these sources.
	conditions func(sources []string) []string
	object     func(t testing.TB, rt *rapid.T, source string) *event.Object
}

func untyped(t testing.TB) *world {
	t.Helper()
	return &world{
		env: tableEnv(t), sources: []string{"pods", "nodes"}, object: drawObject, conditions: func([]string) []string { return conditions },
	}
}

// drawFilter joins conditions, mostly by &&.
func drawFilter(rt *rapid.T, conditions []string, depth int) string {
	if depth == 0 || rapid.IntRange(0, 3).Draw(rt, "leaf") == 0 {
		return rapid.SampledFrom(conditions).Draw(rt, "condition")
	}
	join := rapid.SampledFrom([]string{" && ", " && ", " && ", " || "}).Draw(rt, "join")
	return "(" + drawFilter(rt, conditions, depth-1) + join + drawFilter(rt, conditions, depth-1) + ")"
}

func drawObject(t testing.TB, rt *rapid.T, _ string) *event.Object {
	t.Helper()
	fields := func(names ...string) string {
		var parts []string
		for _, name := range names {
			if v := rapid.SampledFrom(values).Draw(rt, name); v != "" {
				parts = append(parts, fmt.Sprintf("%q:%s", name, v))
			}
		}
		return strings.Join(parts, ",")
	}
	text := `{"metadata":{"name":"x","namespace":"` + rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "namespace") + `"`
	if rapid.Bool().Draw(rt, "labels") {
		text += `,"labels":{` + fields("app") + `}`
	}
	text += `}`
	switch rapid.IntRange(0, 9).Draw(rt, "spec") {
	case 0:
	case 1:
		text += `,"spec":` + rapid.SampledFrom(values[2:]).Draw(rt, "odd")
	default:
		text += `,"spec":{` + fields("node", "count", "on") + `}`
	}
	o, err := event.ParseObject(&event.Resource{Cluster: "c"}, text+"}")
	must.Succeed(t, err)
	return o
}

// route is a generated route: its filter without a table, and the counts of its table.
type route struct {
	text               string
	program            *expr.Program
	entry              filters.Entry
	absent, turnedDown int
}

func drawRoutes(t testing.TB, rt *rapid.T, w *world) []*route {
	t.Helper()
	programs := map[string]*expr.Program{}
	var routes []*route
	for range rapid.IntRange(1, 12).Draw(rt, "routes") {
		sources := rapid.SliceOfNDistinct(rapid.SampledFrom(w.sources), 1, len(w.sources), rapid.ID).Draw(rt, "sources")
		slices.Sort(sources)
		r := &route{text: drawFilter(rt, w.conditions(sources), 2), entry: filters.Entry{Initial: rapid.Bool().Draw(rt, "initial"), Born: rapid.IntRange(0, 2).Draw(rt, "born")}}
		key := r.text + strings.Join(sources, " ")
		if programs[key] == nil {
			program, err := w.env.Compile(r.text, expr.Filter, sources...)
			if err != nil {
				t.Fatal(r.text, err)
			}
			programs[key] = program
		}
		r.program = programs[key]
		r.entry.Ops = rapid.SliceOfN(rapid.SampledFrom(event.SourceOps()), 1, 5).Draw(rt, "ops")
		r.entry.Sources = sources
		r.entry.Filter = filters.NewCEL(filters.CELConfig{Program: r.program, Absent: func() { r.absent++ }})
		routes = append(routes, r)
	}
	return routes
}

func drawDelta(t testing.TB, rt *rapid.T, w *world) *event.Delta {
	t.Helper()
	d := &event.Delta{
		Source: rapid.SampledFrom(w.sources).Draw(rt, "source"), Op: rapid.SampledFrom(event.SourceOps()).Draw(rt, "op"),
		Initial: rapid.Bool().Draw(rt, "initial"),
	}
	d.Transit().Epoch = rapid.IntRange(0, 2).Draw(rt, "epoch")
	if d.Op == event.Updated || d.Op == event.Deleted || d.Op == event.Deselected {
		d.Old = w.object(t, rt, d.Source)
	}
	if d.Op == event.Added || d.Op == event.Updated || d.Op == event.Sync {
		d.New = w.object(t, rt, d.Source)
	}
	return d
}

func (r *route) wants(d *event.Delta) bool {
	return slices.Contains(r.entry.Sources, d.Source) && slices.Contains(r.entry.Ops, d.Op) && (!d.Initial || r.entry.Initial && r.entry.Born >= d.Transit().Epoch)
}

// check compares the verdict of a table with the result of the expression alone.
func (r *route) check(t testing.TB, d *event.Delta, m filters.Match, absent int) {
	t.Helper()
	ok, err := r.program.Match(t.Context(), expr.Input{Delta: d})
	switch {
	case errors.Is(err, expr.ErrAbsent):
		if m.Verdict != filters.Filtered || absent != 1 {
			t.Errorf("%s is %v, counted %d times: verdict %d", r.text, err, absent, m.Verdict)
		}
	case err != nil:
		if m.Verdict != filters.Failed || m.Err.Error() != err.Error() || absent != 0 {
			t.Errorf("%s is %v: verdict %d, %v", r.text, err, m.Verdict, m.Err)
		}
	case ok:
		if m.Verdict != filters.Matched || absent != 0 {
			t.Errorf("%s is true: verdict %d", r.text, m.Verdict)
		}
	default: // a missing field may be counted before the rest is evaluated
		if m.Verdict != filters.Filtered || absent > 1 {
			t.Errorf("%s is false: verdict %d", r.text, m.Verdict)
		}
	}
	if t.Failed() {
		t.Fatalf("delta %s %s", d, d.Object().Raw())
	}
}

// checkTable: for any routes and deltas, the expression, the filter alone and the table agree. They
// also agree on the counts of missing fields and of excluded deltas.
func checkTable(t *testing.T, w *world) func(*rapid.T) {
	return func(rt *rapid.T) {
		routes := drawRoutes(t, rt, w)
		var entries []filters.Entry
		for _, r := range routes {
			entries = append(entries, r.entry)
		}
		table := filters.NewTable(entries)
		for range rapid.IntRange(1, 6).Draw(rt, "deltas") {
			d := drawDelta(t, rt, w)
			found := map[int]filters.Match{}
			last := -1
			for _, m := range table.Match(t.Context(), d, nil) {
				if m.Entry <= last {
					t.Fatalf("entry %d stands behind %d", m.Entry, last)
				}
				found[m.Entry], last = m, m.Entry
			}
			for i, r := range routes {
				m, mentioned := found[i]
				absent := r.absent
				r.absent = 0
				if !r.wants(d) {
					if mentioned || absent > 0 {
						t.Fatalf("route %d does not want %s", i, d)
					}
					continue
				}
				r.check(t, d, m, absent)
				if alone := table.Evaluate(t.Context(), i, d); alone.Verdict != m.Verdict || r.absent != absent {
					t.Fatalf("%s: verdict %d in the table and %d alone, absent %d and %d", r.text, m.Verdict, alone.Verdict, absent, r.absent)
				}
				r.absent = 0
				if !mentioned {
					r.turnedDown++
				}
			}
		}
		for i, r := range routes {
			if n := table.Skipped(i); n != uint64(r.turnedDown) || table.Skipped(i) != 0 {
				t.Fatalf("%s: %d turned down, want %d", r.text, n, r.turnedDown)
			}
		}
	}
}

func TestTableAgrees(t *testing.T) {
	// Guarantee: filter-table
	rapid.Check(t, checkTable(t, untyped(t)))
}

func FuzzTable(f *testing.F) {
	w := untyped(f)
	f.Fuzz(func(t *testing.T, data []byte) { rapid.MakeFuzz(checkTable(t, w))(t, data) })
}
