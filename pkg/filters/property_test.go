package filters_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/internal/transit"
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

func tableEnv(t testing.TB) *cel.Env {
	t.Helper()
	env, err := cel.NewEnv(cel.EnvConfig{
		Cluster: "c", Sources: map[string][]string{"pods": nil, "nodes": nil},
		Define: map[string]string{"inTeam": `object.metadata.namespace == "a" && object.spec.count == 1`, "tardy": `size(object.spec.node) == 1 || inTeam`},
	})
	must.Succeed(t, err)
	return env
}

// world contains the parts of routes and deltas.
type world struct {
	env     *cel.Env
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
	text := `{"metadata":{"name":"x"`
	if namespace := rapid.SampledFrom([]string{"a", "a", "b", "c", ""}).Draw(rt, "namespace"); namespace != "" {
		text += `,"namespace":"` + namespace + `"`
	}
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
	text          string
	program       *cel.Program
	entry         filters.Entry
	alone         *filters.CEL
	table, single counted // by the table, and by alone
	turnedDown    int
}

// counted has the missing fields that a filter counted and logged.
type counted struct {
	absent uint64
	log    bytes.Buffer
}

func (c *counted) filter(program *cel.Program) *filters.CEL {
	log := slog.NewTextHandler(&c.log, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})
	return filters.NewCEL(filters.CELConfig{
		Program: program, Log: slog.New(log), Absent: func(n uint64) { c.absent += n },
		Place: placed(func(e *cel.EvalError) string { return fmt.Sprintf("%s:%d:%d", e.Define, e.Line, e.Column) }),
	})
}

// drawRoutes generates families of routes, whose filters are the same or differ in a constant.
func drawRoutes(t testing.TB, rt *rapid.T, w *world) []*route {
	t.Helper()
	programs := map[string]*cel.Program{}
	var routes []*route
	for range rapid.IntRange(1, 6).Draw(rt, "families") {
		sources := rapid.SliceOfNDistinct(rapid.SampledFrom(w.sources), 1, len(w.sources), rapid.ID).Draw(rt, "sources")
		slices.Sort(sources)
		family := drawFilter(rt, w.conditions(sources), 2)
		for range rapid.IntRange(1, 12).Draw(rt, "routes") {
			r := &route{text: strings.ReplaceAll(family, `"a"`, rapid.SampledFrom([]string{`"a"`, `"a"`, `"b"`, `"c"`}).Draw(rt, "constant"))}
			key := r.text + strings.Join(sources, " ")
			if programs[key] == nil {
				program, err := w.env.Compile(r.text, cel.Filter, sources...)
				if err != nil {
					t.Fatal(r.text, err)
				}
				programs[key] = program
			}
			r.program = programs[key]
			r.entry = filters.Entry{
				Existing: rapid.Bool().Draw(rt, "existing"), Born: rapid.IntRange(0, 2).Draw(rt, "born"),
				Ops: rapid.SampledFrom(opSets()).Draw(rt, "ops"), Sources: sources, Filter: r.table.filter(r.program),
			}
			if rapid.IntRange(0, 3).Draw(rt, "scoped") == 0 {
				r.entry.Scope = &filters.Scope{Namespaces: rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "*", ""}), 0, 3).Draw(rt, "namespaces")}
			}
			r.alone = r.single.filter(r.program)
			routes = append(routes, r)
		}
	}
	return routes
}

// opSets are the ops of generated routes: most have the same, so that they share lists.
func opSets() [][]event.Op {
	return [][]event.Op{
		event.SourceOps(), event.SourceOps(), {event.Added, event.Updated, event.Deleted}, {event.Updated}, {event.Deleted, event.Deselected, event.Deleted}, {event.Sync},
	}
}

func drawDelta(t testing.TB, rt *rapid.T, w *world) *event.Delta {
	t.Helper()
	d := &event.Delta{
		Source: rapid.SampledFrom(w.sources).Draw(rt, "source"), Op: rapid.SampledFrom(event.SourceOps()).Draw(rt, "op"),
		Initial: rapid.Bool().Draw(rt, "initial"),
	}
	transit.Of(d).Epoch = rapid.IntRange(0, 2).Draw(rt, "epoch")
	if d.Op == event.Updated || d.Op == event.Deleted || d.Op == event.Deselected {
		d.Old = w.object(t, rt, d.Source)
	}
	if d.Op == event.Added || d.Op == event.Updated || d.Op == event.Sync {
		d.New = w.object(t, rt, d.Source)
	}
	return d
}

func (r *route) wants(d *event.Delta) bool {
	return slices.Contains(r.entry.Sources, d.Source) && slices.Contains(r.entry.Ops, d.Op) && (!d.Initial || r.entry.Existing && r.entry.Born >= transit.Of(d).Epoch)
}

// check compares the verdict of a table with the result of the expression alone.
func (r *route) check(t testing.TB, d *event.Delta, m filters.Match, absent uint64) {
	t.Helper()
	ok, err := r.program.Match(t.Context(), cel.Input{Delta: d})
	switch {
	case errors.Is(err, cel.ErrAbsent):
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
// also agree on the counts of missing fields and of excluded deltas, whenever these are read, and
// on the one message about a missing field.
func checkTable(t *testing.T, w *world) func(*rapid.T) {
	return func(rt *rapid.T) {
		routes := drawRoutes(t, rt, w)
		var entries []filters.Entry
		for _, r := range routes {
			entries = append(entries, r.entry)
		}
		table, skipped := filters.NewTable(entries), make([]uint64, len(routes))
		var some []*event.Delta
		for range rapid.IntRange(1, 4).Draw(rt, "objects") {
			some = append(some, drawDelta(t, rt, w))
		}
		for range rapid.IntRange(1, 12).Draw(rt, "deltas") {
			matchOne(t, table, routes, rapid.SampledFrom(some).Draw(rt, "delta"))
			if rapid.Bool().Draw(rt, "read") {
				read(t, table, routes, skipped)
			}
		}
		read(t, table, routes, skipped)
		for i, r := range routes {
			if table.Skipped(i) != 0 || r.table.absent != r.single.absent {
				t.Fatalf("%s: counts are read twice", r.text)
			}
			if r.table.log.String() != r.single.log.String() || strings.Count(r.table.log.String(), "\n") > 1 {
				t.Fatalf("%s: the table logs %q, the filter %q", r.text, r.table.log.String(), r.single.log.String())
			}
		}
	}
}

// matchOne compares the verdicts of the table about a delta with those of the filters alone.
func matchOne(t *testing.T, table *filters.Table, routes []*route, d *event.Delta) {
	t.Helper()
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
		if !r.wants(d) {
			if mentioned {
				t.Fatalf("route %d does not want %s", i, d)
			}
			continue
		}
		if !mentioned {
			r.turnedDown++
		}
		if !r.entry.Scope.Sees(d.Object().Home()) {
			if mentioned {
				t.Fatalf("route %d does not see %s", i, d)
			}
			continue
		}
		before := r.single.absent
		ok, err := r.alone.Match(t.Context(), d)
		alone := filters.Match{Verdict: filters.Filtered, Err: err}
		switch {
		case err != nil:
			alone.Verdict = filters.Failed
		case ok:
			alone.Verdict = filters.Matched
		}
		if alone.Verdict != m.Verdict {
			t.Fatalf("%s: verdict %d in the table and %d alone", r.text, m.Verdict, alone.Verdict)
		}
		r.check(t, d, m, r.single.absent-before)
	}
}

// read reads the counts of a table, and compares them with those of the filters alone.
func read(t *testing.T, table *filters.Table, routes []*route, skipped []uint64) {
	t.Helper()
	for i, r := range routes {
		skipped[i] += table.Skipped(i)
		if skipped[i] != uint64(r.turnedDown) {
			t.Fatalf("%s: %d turned down, want %d", r.text, skipped[i], r.turnedDown)
		}
		if r.table.absent != r.single.absent {
			t.Fatalf("%s: the table has counted %d missing fields, the filter %d", r.text, r.table.absent, r.single.absent)
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
