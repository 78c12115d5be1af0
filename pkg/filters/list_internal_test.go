package filters

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/test/must"
)

func tableOf(t *testing.T, texts ...string) *Table {
	t.Helper()
	env, err := cel.NewEnv(cel.EnvConfig{Sources: map[string][]string{"pods": {"name"}}})
	must.Succeed(t, err)
	var entries []Entry
	for _, text := range texts {
		program, err := env.Compile(text, cel.Filter, "pods")
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
		if got := fmt.Sprint(entriesOf(l.open.candidates)); got != want.asked {
			t.Errorf("%s: %s are asked, want %s", op, got, want.asked)
		}
		for value, n := range want.groups {
			found := 0
			for _, g := range l.open.groups {
				if at := g.byValue[value]; at != nil {
					found += len(at.candidates)
				}
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

// TestDivideMissing: entries that lack the same field are counted by one counter, if their other
// equalities are decided, too. A list of the same entries has the same branches.
func TestDivideMissing(t *testing.T) {
	texts := []string{`object.spec.on && object.metadata.labels.team == "a"`, `object.metadata.labels.team == "a" && changed("spec")`}
	for i := range 10 {
		texts = append(texts, fmt.Sprintf(`object.metadata.labels.team == "team-%d" && object.spec.phase == "Running"`, i),
			fmt.Sprintf(`changed("spec") && object.metadata.labels.team == "team-%d"`, i))
	}
	table := tableOf(t, texts...)
	updated, deleted := table.bySource["pods"].live[event.Updated][0], table.bySource["pods"].live[event.Deleted][0]
	if updated.open != deleted.open {
		t.Error("two ops with the same entries have two trees")
	}
	missing := groupOf(t, updated.open, "team").missing
	if got, want := fmt.Sprint(entriesOf(missing.candidates)), "[3 5 7 9 11 13 15 17 19 21]"; got != want {
		t.Errorf("evaluated without the label: %s, want %s", got, want)
	}
	if got, want := fmt.Sprint(entriesOf(missing.absent.members)), "[1]"; got != want {
		t.Errorf("absent without the label: %s, want %s", got, want)
	}
	running := groupOf(t, missing, "phase").byValue["Running"]
	if got, want := fmt.Sprint(entriesOf(running.absent.members)), "[2 4 6 8 10 12 14 16 18 20]"; got != want || len(running.candidates) > 0 {
		t.Errorf("absent without the label, while running: %s, want %s", got, want)
	}
}

func entriesOf(all []candidate) (entries []int) {
	for _, c := range all {
		entries = append(entries, int(c.entry))
	}
	return entries
}

// groupOf returns the group of a branch whose field has a name.
func groupOf(t *testing.T, at *branch, name string) *group {
	t.Helper()
	for i := range at.groups {
		if strings.Contains(at.groups[i].field.ID, strconv.Quote(name)) {
			return &at.groups[i]
		}
	}
	t.Fatalf("no group of %s", name)
	return nil
}

// TestCopiesAreBounded: an entry with many equalities is in a bounded number of branches.
func TestCopiesAreBounded(t *testing.T) {
	var texts []string
	for i := range 10 {
		var parts []string
		for field := range 70 {
			parts = append(parts, fmt.Sprintf(`object.spec.f%d in ["a", "b", "c%d"]`, field, i))
		}
		texts = append(texts, strings.Join(parts, " && "))
	}
	l := tableOf(t, texts...).bySource["pods"].live[event.Updated][0]
	if n := size(l.open); n > len(texts)*2*copies {
		t.Errorf("%d entries are in the tree %d times", len(texts), n)
	}
}

// size returns the number of entries in a branch and those below it.
func size(at *branch) int {
	if at == nil {
		return 0
	}
	n := len(at.candidates)
	if at.absent != nil {
		n += len(at.absent.members)
	}
	for _, g := range at.groups {
		n += size(g.missing)
		for _, known := range g.byValue {
			n += size(known)
		}
	}
	return n
}
