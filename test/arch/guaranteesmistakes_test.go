package arch

import (
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// TestGuaranteesWrong shows that each way in which rows and tests can disagree is reported.
func TestGuaranteesWrong(t *testing.T) {
	const table = "| promise | tests |\n|---|---|\n"
	for name, c := range map[string]struct{ rows, test, want string }{
		"fine":             {"| A. | [^a] |", "func TestA(t *testing.T) {\n\t// Guarantee: a", ""},
		"a script":         {"| A. | [^a] |", "func TestA(t *testing.T) {\n\t// Guarantee: a (x.txtar)", ""},
		"no script":        {"| A. | [^a] |", "func TestA(t *testing.T) {\n\t// Guarantee: a (y.txtar)", "y.txtar is not in testdata"},
		"no ID":            {"| A. | TestA |", "", "has no ID"},
		"twice":            {"| A. | [^a] |\n| B. | [^a] |", "func TestA(t *testing.T) {\n\t// Guarantee: a", "is the ID of another row"},
		"no test":          {"| A. | [^a] |", "func TestA(t *testing.T) {", "no test shows a"},
		"no row":           {"", "func TestA(t *testing.T) {\n\t// Guarantee: b", "TestA shows b, which is no row"},
		"second statement": {"| A. | [^a] |", "func TestA(t *testing.T) {\n\tx()\n\t// Guarantee: a", "not at the beginning of a test"},
		"a helper":         {"| A. | [^a] |", "func help(t *testing.T) {\n\t// Guarantee: a", "not at the beginning of a test"},
		"only soak":        {"| A. | [^a] |", "func TestA(t *testing.T) {\n\t// Guarantee: a\n\teffort.AtLeast(t, effort.Soak)\n}\n", "neither make test nor make e2e shows a, only make soak"},
		"only full":        {"| A. | [^a] |", "func TestA(t *testing.T) {\n\t// Guarantee: a\n\teffort.AtLeast(t, effort.Full)\n}\n", "neither make test nor make e2e shows a, only make test-all"},
		"no list":          {"| A. | [^a] |", "func TestA(t *testing.T) {\n\t// Guarantee: a and b", "is no ID"},
	} {
		tree := fstest.MapFS{"pkg/x/x_test.go": {Data: []byte(c.test)}, "pkg/x/testdata/x.txtar": {}}
		ids, wrong := guaranteeIDs(table + c.rows)
		proofs, misplaced := proofsIn(tree, "pkg")
		wrong = slices.Concat(wrong, misplaced, unproven(ids, proofs))
		if got := strings.Join(wrong, "; "); !strings.Contains(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
