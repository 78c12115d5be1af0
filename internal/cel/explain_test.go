package cel_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/internal/cel/explain"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// findings prints the findings of an Explainer for the object web, a line for each conjunct and for
// each operand.
func findings(t *testing.T, text string) string {
	t.Helper()
	x, err := explain.New(environment(t), text, cel.Filter, "pods")
	if err != nil {
		return "refused: " + err.Error()
	}
	var b strings.Builder
	for _, f := range x.All(t.Context(), updated(t, web, web)) {
		fmt.Fprintf(&b, "%d:%d %s", f.Line, f.Column, f.Text)
		if f.Define != "" {
			fmt.Fprintf(&b, " (%s)", f.Define)
		}
		if f.Err != nil {
			fmt.Fprintf(&b, " | %v", f.Err)
		} else {
			fmt.Fprintf(&b, " | %t", f.Holds)
		}
		for _, o := range f.Operands {
			fmt.Fprintf(&b, " | %s = %s", o.Text, o.JSON)
			if o.Err != nil {
				fmt.Fprintf(&b, "%v", o.Err)
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func TestExplain(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{`true`, "1:0 true | true\n"},
		{`object.spec.replicas > 5`, "1:0 object.spec.replicas > 5 | false | object.spec.replicas = 3\n"},
		{
			`op == "updated" && object.spec.replicas in [1, 2] && !has(object.spec.nope)`,
			"1:0 op == \"updated\" | true | op = \"updated\"\n" +
				"1:19 object.spec.replicas in [1, 2] | false | object.spec.replicas = 3\n1:53 !has(object.spec.nope) | true\n",
		},
		{ // parentheses whose partners are in other terms, and in strings
			`((op == "(&&" && (true)) && ((object.spec.ratio > 1.0 || false) && (("a") == ")")))`,
			"1:2 op == \"(&&\" | false | op = \"updated\"\n1:17 (true) | true\n1:29 (object.spec.ratio > 1.0 || false) | false\n1:67 ((\"a\") == \")\") | false\n",
		},
		{ // lines, comments, and characters of more than a byte
			"op == \"ü\" && // what (it is\n  object.spec.nope == 1\n&& changed(\"spec\")",
			"1:0 op == \"ü\" | false | op = \"updated\"\n" +
				"2:2 object.spec.nope == 1 | 2:14: no such key: \"nope\" | object.spec.nope = 2:14: no such key: \"nope\"\n3:3 changed(\"spec\") | false\n",
		},
		{
			`crashing && size(same) == 0`,
			"1:0 statuses.exists(c, c.?state.waiting.reason.orValue(\"\") == \"CrashLoopBackOff\") (crashing) | true\n" +
				"1:12 size(same) == 0 | true | size(same) = 0\n",
		},
		{`object.spec.replicas`, ""}, // of no known type: found out when it runs
		{`op == "a" && objct.x == 1`, `refused: 1:14: undeclared reference to 'objct'; did you mean "object"?`},
		{`op && true`, `refused: 1:1: expected type 'bool' but found 'string'`},
	} {
		if got := findings(t, c.text); got != c.want && c.want != "" {
			t.Errorf("%s:\n got %s\nwant %s", c.text, got, c.want)
		}
	}
}

// TestExplainAgrees: a filter matches if all its conjuncts hold, and does not if one of them is
// false, however it is written.
func TestExplainAgrees(t *testing.T) {
	terms := []string{
		`op == "updated"`, `(op == "x")`, `object.nope == 1`, `crashing`, `(op == ")" || true)`, `!changed("spec")`, `"((" + op == "((updated"`,
	}
	shapes := []string{"%s && %s && %s", "(%s) && (%s && %s)", "((%s && %s) && %s)", "(%s && (%s && (%s)))", " ( %s\n&& %s ) // (\n &&%s"}
	env, in := environment(t), updated(t, web, web)
	for _, shape := range shapes {
		for n := 0; n < len(terms)*len(terms)*len(terms); n += 5 {
			text := fmt.Sprintf(shape, terms[n%len(terms)], terms[n/len(terms)%len(terms)], terms[n/len(terms)/len(terms)])
			p, err := env.Compile(text, cel.Filter, "pods")
			if err != nil {
				t.Fatal(text, err)
			}
			x, err := explain.New(env, text, cel.Filter, "pods")
			if err != nil {
				t.Fatal(text, err)
			}
			found := x.All(t.Context(), in)
			matches, matchErr := p.Match(t.Context(), in)
			refusal, refused := x.Refusal(t.Context(), in)
			if len(found) != 3 || refused == matches || refused && (refusal.Err != nil) != (matchErr != nil) {
				t.Fatalf("%s: %t, %v; but %+v", text, matches, matchErr, found)
			}
		}
	}
}

func TestValue(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{`object.metadata.labels`, `{"app": "web", "a.b/c": "x"}`},
		{`{"b": object.spec.big, "a": [1, 2u, 2.5, null]}`, `{"a":[1,2,2.5,null],"b":9007199254740993}`},
		{`object.?nope`, `null`},
		{`object.spec.replicas + 1`, `4`},
		{`object.nope`, `absent`},
		{`type(1)`, `type`},
		{`object.spec.containers.map(c, object.spec.containers.map(d, object.spec.containers.map(e, list("pods").size())))`, `[[[0,0],[0,0]],[[0,0],[0,0]]]`},
	} {
		got, err := compile(t, c.text, cel.Value).Value(t.Context(), updated(t, web, web))
		if err != nil {
			got = []byte(kindOf(err))
		}
		if string(got) != c.want {
			t.Errorf("%s: got %s, want %s", c.text, got, c.want)
		}
	}
}

// TestNoCache: a missing cache causes an error of its own.
func TestNoCache(t *testing.T) {
	in := updated(t, web, web)
	in.Cache = nil
	for _, text := range []string{`lookup("byNode", "a") == []`, `count("byNode", "a") == 0`, `get("pods", "a", "b") == null`, `list("pods") == []`} {
		if _, err := compile(t, text, cel.Filter).Match(t.Context(), in); !errors.Is(err, cel.ErrNoCache) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestQueryCostsLess: an expression that is evaluated for many objects has a lower limit.
func TestQueryCostsLess(t *testing.T) {
	text := `object.l.all(a, object.l.all(b, a != "") )`
	list := `{"metadata": {"name": "x"}, "l": [` + strings.Repeat(`"a",`, 249) + `"a"]}`
	in := cel.Input{Delta: &event.Delta{Source: "pods", Op: event.Sync, New: object(t, list)}}
	if ok, err := compile(t, text, cel.Filter).Match(t.Context(), in); !ok || err != nil {
		t.Errorf("filter: %t, %v", ok, err)
	}
	if _, err := compile(t, text, cel.Query).Match(t.Context(), in); !errors.Is(err, cel.ErrCost) {
		t.Errorf("query: %v", err)
	}
}

// FuzzExplain: every filter that compiles can be split, and the findings agree with the filter.
func FuzzExplain(f *testing.F) {
	for _, text := range []string{
		`op == "a" && true`, `((true) && (false || (true && false)))`, "// a (\nop == '''\n(''' && r\")\" == b'x' && true", `crashing&&!same.exists(x, x && true)`,
	} {
		f.Add(text)
	}
	env, in := environment(f), updated(f, web, web)
	f.Fuzz(func(t *testing.T, text string) {
		p, err := env.Compile(text, cel.Filter, "pods")
		if err != nil {
			return
		}
		x, err := explain.New(env, text, cel.Filter, "pods")
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		matches, err := p.Match(t.Context(), in)
		if _, refused := x.Refusal(t.Context(), in); refused == matches && !errors.Is(err, cel.ErrCost) {
			t.Fatalf("%q: %t, %v, but %+v", text, matches, err, x.All(t.Context(), in))
		}
	})
}
