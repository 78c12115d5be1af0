package cel_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/cel"
)

// TestNothingHangs: each of these would take minutes, or for ever, on an object that an API server
// can store. Should one begin to, the test does not end.
func TestNothingHangs(t *testing.T) {
	// Guarantee: cost-bounded
	const mb = 1 << 20
	list := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `,"%d"`, i)
		}
		return "[" + b.String()[1:] + "]"
	}
	text := `{"metadata": {"name": "x"}, "count": 1000000, "a": "` + strings.Repeat("a", 8*mb) + `", "digits": "` + strings.Repeat("9", 4*mb) +
		`", "half": "` + strings.Repeat("a", 2*mb) + `b", "long": ` + list(100_000) + `, "other": ` + list(100_001) + `, "nasty": "(x+x+)+y|` +
		strings.Repeat(`.{1000}`, 9) + `", "huge": "` + strings.Repeat("(a|aa)?", 100_000) + `"}`
	in := updated(t, text, text)
	for _, text := range []string{
		`object.a.matches("(a{0,500}){1,2}b")`,
		`object.a.matches(object.nasty)`,
		`"a".matches(object.huge)`,
		`object.long.exists(x, object.half.matches("a{0,900}c"))`,
		`object.a.findAll("a{1,1000}b").size() == 1`,
		`sets.contains(object.long, object.other)`,
		`object.long.distinct().size() == 1`,
		`object.a.indexOf(object.half) == 1`,
		`object.a.lastIndexOf("b" + object.half) == 1`,
		`isQuantity(object.digits)`,
		`object.long.exists(x, base64.encode(bytes(object.a)) == x)`,
		`object.long.exists(x, math.greatest(object.long.map(y, int(y))) == 1)`,
		`object.long.exists(a, lists.range(object.count).size() == 1)`,
		`cel.bind(a, object.a + object.a, cel.bind(b, a + a + a + a, cel.bind(c, b + b + b + b, cel.bind(d, c + c + c + c, d + d + d + d == ""))))`,
	} {
		t.Run(text, func(t *testing.T) {
			if ok, err := compile(t, text, cel.Filter).Match(t.Context(), in); kindOf(err) != "cost" {
				t.Errorf("%v %v", ok, err)
			}
		})
	}
}

// TestWeighedFunctions: their results have not changed.
func TestWeighedFunctions(t *testing.T) {
	in := updated(t, web, web)
	for _, text := range []string{
		`object.spec.nodeName.matches("^n[0-9]$") && "n1".matches(object.spec.nodeName) && matches(object.metadata.name, "web")`,
		`object.metadata.name.find("[0-9]+") == "0" && object.metadata.name.find(object.spec.nodeName) == ""`,
		`object.metadata.name.findAll("[a-z]") == ["w", "e", "b"] && object.metadata.name.findAll("[a-z]", 2) == ["w", "e"]`,
		`sets.contains(object.spec.containers.map(c, c.name), ["a"]) && sets.intersects(["x", "a"], ["a"]) && !sets.equivalent([1], [2])`,
		`object.metadata.name.indexOf("b") == 2 && object.metadata.name.indexOf("b", 3) == -1 && object.metadata.name.lastIndexOf("-") == 3`,
		`[1, 2, 1].distinct() == [1, 2] && ["a", "b"].indexOf("b") == 1 && ["a", "a"].lastIndexOf("a") == 1`,
		`isQuantity("1Ki") && quantity("1Ki").isGreaterThan(quantity("1000")) && lists.range(3) == [0, 1, 2]`,
		`dyn(object.metadata.name).indexOf("b") == 2 && dyn(["a"]).indexOf("a") == 0`,
	} {
		if ok, err := compile(t, text, cel.Filter).Match(t.Context(), in); !ok || err != nil {
			t.Error(text, ok, err)
		}
	}
	for text, want := range map[string]string{
		`object.metadata.name.matches(object.metadata.name + "(")`: "type", `object.spec.replicas.matches("x")`: "type",
		`object.absent.matches("x")`: "absent", `object.metadata.name.matches(object.absent)`: "absent", `quantity(object.spec.nodeName) == quantity("1")`: "type",
	} {
		if _, err := compile(t, text, cel.Filter).Match(t.Context(), in); kindOf(err) != want {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
