package budgets_test

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/test/must"
)

const file = "testdata/budgets.txt"

// budget is a line of the file.
type budget struct {
	name string
	usage
}

// settle compares the figures with the file, or writes it.
func settle(t *testing.T, found []budget) {
	t.Helper()
	text := render(found)
	if *update {
		must.Succeed(t, os.WriteFile(file, []byte(text), 0o644)) //nolint:gosec // a golden
		return
	}
	content, err := os.ReadFile(file)
	must.Succeed(t, err)
	problems := compare(string(content), found)
	for _, p := range problems {
		t.Error(p)
	}
	if len(problems) > 0 {
		t.Errorf("if this is intended, commit the result of: go test ./test/budgets -update\n%s\nit replaces\n%s", text, content)
	}
}

// render returns the content of the file.
func render(budgets []budget) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Written by %s: go test ./test/budgets -update\n# work, allocations and bytes of a delta; of restart: of an object\n", runtime.Version())
	for _, x := range budgets {
		fmt.Fprintf(&b, "%-12s %8.2f %8.0f\n", x.name, x.allocs, x.bytes)
	}
	return b.String()
}

// parse returns the budgets of a file.
func parse(text string) (map[string]usage, error) {
	budgets := map[string]usage{}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		var x budget
		if _, err := fmt.Sscan(line, &x.name, &x.allocs, &x.bytes); err != nil {
			return nil, fmt.Errorf("%s: %q: %w", file, line, err)
		}
		budgets[x.name] = x.usage
	}
	return budgets, nil
}

// compare returns the figures that differ from their budget.
func compare(text string, found []budget) (problems []string) {
	budgets, err := parse(text)
	if err != nil {
		return []string{err.Error()}
	}
	for _, x := range found {
		want, ok := budgets[x.name]
		if !ok {
			problems = append(problems, x.name+": there is no budget")
		}
		delete(budgets, x.name)
		for _, figure := range []struct {
			unit      string
			got, want float64
		}{{"allocations", x.allocs, want.allocs}, {"bytes", x.bytes, want.bytes}} {
			if off := figure.got - figure.want; ok && math.Abs(off) > tolerance*figure.want {
				problems = append(problems, fmt.Sprintf("%s: %.2f %s, budgeted are %.2f", x.name, figure.got, figure.unit, figure.want))
			}
		}
	}
	for name := range budgets {
		problems = append(problems, name+": there is a budget, but no such work")
	}
	return problems
}

// TestCompare: a figure above and below its budget is found, and so are missing and surplus
// budgets.
func TestCompare(t *testing.T) {
	text := render([]budget{{"a", usage{10, 1000}}, {"b", usage{10, 1000}}, {"c", usage{0, 0}}, {"gone", usage{1, 1}}})
	got := compare(text, []budget{{"a", usage{10.19, 981}}, {"b", usage{10.21, 979}}, {"c", usage{0.01, 0}}, {"new", usage{1, 1}}})
	want := []string{
		"b: 10.21 allocations, budgeted are 10.00", "b: 979.00 bytes, budgeted are 1000.00",
		"c: 0.01 allocations, budgeted are 0.00", "new: there is no budget", "gone: there is a budget, but no such work",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if got := compare("a x y\n", nil); len(got) != 1 || !strings.Contains(got[0], `"a x y\n"`) {
		t.Errorf("got %q of an unreadable file", got)
	}
}
