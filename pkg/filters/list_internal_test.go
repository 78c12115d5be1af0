package filters

import (
	"fmt"
	"testing"

	"github.com/deltarouter/deltarouter/internal/expr"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/test/must"
)

func tableOf(t *testing.T, texts ...string) *Table {
	t.Helper()
	env, err := expr.NewEnv(expr.EnvConfig{Sources: map[string][]string{"pods": {"name"}}})
	must.Succeed(t, err)
	var entries []Entry
	for _, text := range texts {
		program, err := env.Compile(text, expr.Filter, "pods")
		must.Succeed(t, err)
		entries = append(entries, Entry{Sources: []string{"pods"}, Ops: []event.Op{event.Updated, event.Deleted}, Filter: NewCEL(CELConfig{Program: program})})
	}
	return NewTable(entries)
}

// TestDivide: a route is looked up by its most selective equality, is in no list of an op that it
// does not want, and is evaluated for each delta only if it has no equality.
func TestDivide(t *testing.T) {
	texts := []string{`changed("spec")`, `op == "updated"`, `op == "deleted" && object.spec.node == "n1"`}
	for i := range 10 {
		texts = append(texts, fmt.Sprintf(`object.metadata.namespace == "shop" && object.metadata.labels.app == "app-%d" && changed("spec")`, i),
			fmt.Sprintf(`object.metadata.labels.team == "team-%d" && object.metadata.name == "x-%d"`, i, i))
	}
	tests := map[event.Op]struct {
		asked  string
		groups map[string]int
	}{
		event.Updated: {"[0 1]", map[string]int{"app-3": 1, "x-3": 1, "shop": 0, "team-3": 0, "n1": 0}},
		event.Deleted: {"[0]", map[string]int{"app-3": 1, "x-3": 1, "shop": 0, "team-3": 0, "n1": 1}},
	}
	table := tableOf(t, texts...)
	for op, want := range tests {
		l := table.bySource["pods"].live[op][0]
		if got := fmt.Sprint(l.asked); got != want.asked {
			t.Errorf("%s: %s are asked, want %s", op, got, want.asked)
		}
		for value, n := range want.groups {
			found := 0
			for _, g := range l.groups {
				found += len(g.byValue[value])
			}
			if found != n {
				t.Errorf("%s: %d routes under %q, want %d", op, found, value, n)
			}
		}
	}
}

// TestEqualFilters: equal filters are evaluated once per delta, unless they have look-ups.
func TestEqualFilters(t *testing.T) {
	table := tableOf(t, `changed("spec")`, `changed("status")`, `changed("spec")`, `count("name", "a") > 0`, `count("name", "a") > 0`, `changed("spec")`)
	for i, want := range []int{0, -1, 0, -1, -1, 0} {
		if got := table.rules[i].shared; got != want {
			t.Errorf("filter %d has answer %d, want %d", i, got, want)
		}
	}
	r, _ := table.scratch.Get().(*readings)
	r.answers[0] = answered{answer{ok: true}, true}
	if a := table.answer(t.Context(), &table.rules[2], r); !a.ok {
		t.Error("evaluated twice")
	}
}
