package ledger_test

import (
	"strings"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/test/fleet/ledger"
	"github.com/deltarouter/deltarouter/test/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// history has the objects a, with two versions and its delete, and b, with two versions. Both have
// the key k; the second version of b is the last change of all.
func history() *ledger.History {
	h := &ledger.History{}
	h.Changed("a", "a", "k", "1")
	h.Changed("b", "b", "k", "2")
	h.Changed("a", "a", "k", "3")
	h.Deleted("a")
	h.Changed("b", "b", "k", "5")
	return h
}

// deliveries reads "uid+version" and "uid-", a delete, each with an id of its own. A text after
// "=" is the id.
func deliveries(text string) (all []ledger.Delivery) {
	for word := range strings.FieldsSeq(text) {
		word, id, _ := strings.Cut(word, "=")
		if id == "" {
			id = word
		}
		d := ledger.Delivery{ID: id, Op: "updated"}
		var changed bool
		if d.UID, d.Version, changed = strings.Cut(word, "+"); !changed {
			d.UID, d.Op = strings.TrimSuffix(word, "-"), "deleted"
		}
		all = append(all, d)
	}
	return all
}

// TestLedger shows that the checker fails on a loss, a swap, an invention and too many duplicates.
func TestLedger(t *testing.T) {
	for _, test := range []struct {
		name, got  string
		rule       ledger.Rule
		duplicates int
		want       string // part of the first problem; empty: none
	}{
		{name: "all", got: "a+1 b+2 a+3 a- b+5"},
		{name: "a lost change", got: "a+1 b+2 a- b+5", want: "lost: a at 3"},
		{name: "a lost delete", got: "a+1 b+2 a+3 b+5", want: "lost: a at deleted"},
		{name: "a lost first change", got: "b+2 a+3 a- b+5", want: "lost: a at 1"},
		{name: "a swap", got: "a+1 b+2 a- a+3 b+5", want: "swapped: a at 3", rule: ledger.Rule{Returns: 1}},
		{name: "order of objects", got: "b+2 a+1 a+3 b+5 a-"},
		{name: "order of a key", got: "b+2 a+1 a+3 a- b+5", rule: ledger.Rule{Keyed: true, Returns: 1}, want: "swapped: a at 1"},
		{name: "a permitted duplicate", got: "a+1 b+2 a+3 a+3 a- b+5", rule: ledger.Rule{Duplicates: 1}, duplicates: 1},
		{name: "a duplicate", got: "a+1 b+2 a+3 a+3 a- b+5", duplicates: 1, want: "1 duplicates, and at most 0"},
		{name: "a repeated part", got: "a+1 b+2 a+3 a- a+1 a+3 a- b+5", rule: ledger.Rule{Duplicates: 3, Returns: 1}, duplicates: 3},
		{name: "a repeated part in another order", got: "a+1 b+2 a+3 a- a+3 a+1 a- b+5", rule: ledger.Rule{Duplicates: 3, Returns: 1}, duplicates: 3, want: "went back 2 times"},
		{name: "a swap that a repetition hides", got: "a+1 b+2 a- a+1 a+3 a- b+5", rule: ledger.Rule{Duplicates: 9, Returns: 9}, duplicates: 2, want: "swapped: a at 3"},
		{name: "another id", got: "a+1 b+2 a+3 a+3=x a- b+5", rule: ledger.Rule{Duplicates: 1}, duplicates: 1, want: "two ids"},
		{name: "an invented object", got: "a+1 c+9 b+2 a+3 a- b+5", want: "invented: updated of c"},
		{name: "an invented version", got: "a+1 b+2 a+3 a- b+5 b+6", want: `at "6"`},
		{name: "an invented delete", got: "a+1 b+2 a+3 a- b+5 b-", want: "invented: deleted of b"},
		{name: "the last states", got: "a+1 a- b+5", rule: ledger.Rule{Latest: true}},
		{name: "came and went", got: "b+5", rule: ledger.Rule{Latest: true}},
		{name: "a last state that is lost", got: "a+1 a- b+2", rule: ledger.Rule{Latest: true}, want: "lost: b at 5"},
		{name: "an overtaken state", got: "a+3 a+1 a- b+5", rule: ledger.Rule{Latest: true}, want: "swapped: a at 1"},
		{name: "an overtaken state after a loss", got: "a+3 a+1 a- b+5", rule: ledger.Rule{Latest: true, Returns: 1, Duplicates: 1}, duplicates: 1},
		{name: "an end that is lost", got: "a+3 b+5", rule: ledger.Rule{Latest: true}, want: "lost: a at deleted"},
	} {
		t.Run(test.name, func(t *testing.T) {
			h, got := history(), deliveries(test.got)
			duplicates, problems := h.Check(got, test.rule)
			problems = append(problems, h.Missing(got, test.rule)...)
			if duplicates != test.duplicates {
				t.Errorf("%d duplicates, want %d", duplicates, test.duplicates)
			}
			one(t, problems, test.want)
		})
	}
}

func one(t *testing.T, problems []string, want string) {
	t.Helper()
	switch {
	case want == "" && len(problems) > 0:
		t.Errorf("problems: %q", problems)
	case want != "" && (len(problems) == 0 || !strings.Contains(problems[0], want)):
		t.Errorf("problems: %q, want one with %q", problems, want)
	}
}

func TestHistory(t *testing.T) {
	if h := history(); h.Len() != 5 || !h.Knows("a") || h.Knows("c") {
		t.Errorf("%d changes", h.Len())
	}
	h := history()
	first := ledger.Delivery{UID: "a", Version: "1", At: time.Now().Add(time.Hour)}
	again := ledger.Delivery{UID: "a", Version: "1", At: time.Now().Add(2 * time.Hour)}
	if took := h.Slowest([]ledger.Delivery{first, again}); took < time.Hour || took > 90*time.Minute {
		t.Errorf("the slowest delivery took %v, want one hour", took)
	}
	if (&ledger.History{}).Knows("a") {
		t.Error("an empty history knows a")
	}
}

func reports(text string) (all []ledger.Delivery) {
	for word := range strings.FieldsSeq(text) {
		uid, op, _ := strings.Cut(word, ":")
		all = append(all, ledger.Delivery{ID: word, UID: uid, Op: strings.TrimRight(op, "123")})
	}
	return all
}

func TestReports(t *testing.T) {
	want := map[string][]string{"a": {"entered", "left"}, "b": {"entered"}}
	for got, problem := range map[string]string{
		"a:entered b:entered a:left":            "",
		"a:entered a:entered b:entered a:left":  "",
		"a:entered b:entered":                   `condition of a: reported "entered"`,
		"a:entered a:entered1 b:entered a:left": `"entered, entered, left"`,
		"a:left b:entered a:entered":            `"left, entered"`,
		"a:entered a:left b:entered c:entered":  "condition of c: reported, although",
	} {
		one(t, ledger.Reports(reports(got), want), problem)
	}
}

func TestCounts(t *testing.T) {
	want := map[string]int{"a": 2}
	for got, problem := range map[string]string{
		"a:added a:updated":            "",
		"a:added a:updated a:updated":  "",
		"a:added":                      "1 events, want 2",
		"a:added a:updated1 a:updated": "3 events, want 2",
	} {
		one(t, ledger.Counts(reports(got), want), problem)
		if n := ledger.Different(reports(got)); (n == 2) != (problem == "") {
			t.Errorf("%s: %d different events", got, n)
		}
	}
}
