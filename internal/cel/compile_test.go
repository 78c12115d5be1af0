package cel_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/test/must"
)

func TestCompileErrors(t *testing.T) {
	const anyUsage = 0
	for _, test := range []struct {
		usage cel.Usage
		text  string
		want  string // as Error writes it, with columns from 1
	}{
		{anyUsage, `obj.spec == 1`, `1:1: undeclared reference to 'obj'; did you mean "object"?`},
		{anyUsage, `oldobject.spec == 1`, `1:1: undeclared reference to 'oldobject'; did you mean "oldObject"?`},
		{anyUsage, `op == "x" && crashin`, `1:14: undeclared reference to 'crashin'; did you mean "crashing"?`},
		{anyUsage, "op == 'x' &&\n  change('spec')", `2:9: undeclared reference to 'change'; did you mean "changed"?`},
		{anyUsage, `zzzzzzz`, `1:1: undeclared reference to 'zzzzzzz'`},
		{anyUsage, `"ü" == nam`, `1:8: undeclared reference to 'nam'`}, // columns count code points
		{anyUsage, `object.spec ==`, `1:15: syntax error: the expression ends where something has to follow`},
		{anyUsage, ``, `1:1: syntax error: the expression ends where something has to follow`},
		{anyUsage, `object.spec == 'a`, `1:16: syntax error: a quote that opens here is not closed`},
		{anyUsage, `op == 1`, `1:4: == does not take (string, int)`},
		{anyUsage, `op.matches("(")`, `1:12: invalid matches argument`},
		{anyUsage, `op == "x" || int("x") == 1`, `1:17: `},
		{anyUsage, `object.a.split(",", "x") == []`, `1:15: split() of a`},
		{anyUsage, `pod {{object.metadata.name}}`, `1:5: syntax error: an expression is CEL, which has no templates; put texts in quotes and join them with +`},
		{anyUsage, `{"text": pod ${object.metadata.name}}`, `1:14: syntax error: an expression is CEL, which has no templates`},
		{anyUsage, `pod \(object.metadata.name)`, `1:5: syntax error: an expression is CEL, which has no templates`},
		{anyUsage, `op changed`, `1:4: syntax error: unexpected 'changed'; put text in quotes, and join values with an operator such as + or &&`},
		{anyUsage, `op == [1,,2]`, `1:10: syntax error: unexpected ','`},
		{anyUsage, `{"a" 1}`, `1:6: syntax error: ':' is missing before '1'`},
		{anyUsage, `@input == 1`, `1:1: syntax error: unexpected '@'`},
		{anyUsage, `lookup("byNod", "n").size() == 1`, `1:8: source "pods" has no index "byNod"; did you mean "byNode"?`},
		{anyUsage, `lookup("pod.byNode", "n").size() == 1`, `1:8: there is no source "pod"; did you mean "pods"?`},
		{anyUsage, `count(op, "n") == 1`, `1:7: the first argument of count() must be a literal string: it is checked before anything runs`},
		{anyUsage, `list("nods").size() == 1`, `1:6: there is no source "nods"; did you mean "nodes"?`},
		{anyUsage, `get("nodes", "n") == 1`, `1:4: get() does not take (string, string)`},
		{
			anyUsage, `changed("") || changed("a..b") || changed("a[") || changed("a.")`,
			`1:9: path: a name is missing; write it like status.conditions or metadata.labels["a.b/c"]; ` +
				`1:27: path: a name is missing; write it like status.conditions or metadata.labels["a.b/c"]; ` +
				`1:45: path: a ] or the key in front of it is missing; 1:63: path: a name is missing after the dot`,
		},
		{cel.Filter, `object.spec.size()`, `1:1: the result must be true or false, but it is of type int`},
		{cel.Emit, `"x"`, `1:1: the result must be a map or a list of maps, but it is of type string`},
		{cel.Emit, `["x"]`, `1:1: the result must be a map or a list of maps, but it is of type list(string)`},
		{cel.Emit, `event("x")`, `1:7: event() takes a map, the data of the event, and this is of type string`},
		{cel.Emit, `event({}).withTyp("x")`, `1:18: undeclared reference to 'withTyp'; did you mean "withType"?`},
		{cel.Emit, `event({}).withType(1)`, `1:19: withType() of a event does not take (int)`},
		{cel.Filter, `event({}) == event({})`, `1:6: event() exists in emit only; 1:19: event() exists in emit only`},
		{cel.Filter, `suppressed > 1`, `1:1: suppressed exists in emit only`},
		{cel.Key, `objects[0].metadata.name`, `1:1: objects exists in emit only`},
		{cel.Key, `["x"]`, `1:1: the result must be a string, an int or a bool, but it is of type list(string)`},
		{cel.Index, `[[1]]`, `1:1: the result must be a string, a number, a bool, or a list or map of them, but it is of type list(list(int))`},
		{cel.Index, `timestamp("2026-01-02T03:04:05Z")`, `1:1: the result must be a string, a number, a bool, or a list or map of them, but it is of type timestamp`},
		{cel.Index, `op`, `1:1: op does not exist here: an index sees only object, source and cluster`},
		{cel.Index, `oldObject.spec.nodeName`, `1:1: oldObject does not exist here: an index sees only object, source and cluster`},
		{
			cel.Index, `lookup("byNode", "x").map(p, p.metadata.name)`,
			`1:7: lookup() does not exist here: an index sees only object, source and cluster`,
		},
		{
			cel.Index, `same.map(p, p.metadata.name)`,
			`define same: 1:7: lookup() does not exist here: an index sees only object, source and cluster`,
		},
	} {
		usage := test.usage
		if usage == anyUsage {
			usage = cel.Filter
		}
		_, err := environment(t).Compile(test.text, usage, "pods")
		if err == nil || !strings.HasPrefix(err.Error(), test.want) || test.usage != anyUsage && err.Error() != test.want {
			t.Errorf("%s\n got %v\nwant %s", test.text, err, test.want)
		}
		if len(cel.CompileErrors(err)) == 0 {
			t.Errorf("%s: not a CompileError: %v", test.text, err)
		}
	}
}

func TestDefineErrors(t *testing.T) {
	for _, test := range []struct {
		define map[string]string
		want   []string
	}{
		{map[string]string{"a": "b", "b": "c", "c": "a"}, []string{"define a: 1:1: defines refer to each other in a cycle: a → b → c → a"}},
		{map[string]string{"a": "a"}, []string{"define a: 1:1: defines refer to each other in a cycle: a → a"}},
		{map[string]string{"a": "true &&", "b": "nothing", "c": "true"}, []string{
			"define a: 1:8: syntax error: the expression ends where something has to follow",
		}},
		{map[string]string{"a": "nothing1", "b": "nothing2", "c": "true"}, []string{
			"define a: 1:1: undeclared reference to 'nothing1'", "define b: 1:1: undeclared reference to 'nothing2'",
		}},
		{map[string]string{"op": "true"}, []string{`define op: 1:1: the name "op" is taken: choose another`}},
		{map[string]string{"int": "true"}, []string{`define int: 1:1: the name "int" is taken: choose another`}},
		{map[string]string{"in": "true"}, []string{`define in: 1:1: the name "in" is a reserved word of CEL: choose another`}},
		{map[string]string{"a-b": "true"}, []string{
			`define a-b: 1:1: the name "a-b" cannot be used in an expression: letters, digits and _ only`,
		}},
		{map[string]string{"a": `1`, "b": "a && true"}, []string{"define b: 1:1: expected type 'bool' but found 'int'"}},
	} {
		_, err := cel.NewEnv(cel.EnvConfig{Define: test.define})
		var got []string
		for _, e := range cel.CompileErrors(err) {
			got = append(got, e.Error())
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%v\n got %q\nwant %q", test.define, got, test.want)
		}
	}
}

// TestDefineEverywhere: an expression of any usage can use a define, and a define others.
func TestDefineEverywhere(t *testing.T) {
	env := typedEnv(t, map[string]string{
		"node": `object.spec.nodeName`, "bound": `node != ""`, "others": `list("pods").filter(p, bound && p.spec.nodeName == node)`,
	})
	for usage, text := range map[cel.Usage]string{
		cel.Filter: `bound`, cel.Index: `node`, cel.Emit: `{"is": node, "bound": bound}`, cel.Key: `node`, cel.Query: `bound`, cel.Value: `node`,
		cel.When: `bound`, cel.Objects: `others`,
	} {
		p, err := env.Compile(text, usage, "pods")
		if err != nil {
			t.Errorf("usage %d: %v", usage, err)
			continue
		}
		if !slices.Contains(p.Defines(), "node") {
			t.Errorf("usage %d: it uses %q", usage, p.Defines())
		}
	}
}

// A define may be fine for one source and wrong for another.
func TestDefineIsCheckedWhereItIsUsed(t *testing.T) {
	env := environment(t)
	if _, err := env.Compile("same.size() == 1", cel.Filter, "pods"); err != nil {
		t.Error(err)
	}
	_, err := env.Compile("same.size() == 1", cel.Filter, "nodes")
	var e *cel.CompileError
	if !errors.As(err, &e) || e.Define != "same" || len(e.Issues) != 1 || e.Issues[0].Line != 1 || e.Issues[0].Column != 7 {
		t.Errorf("%+v", err)
	}
}

func TestSources(t *testing.T) {
	for text, want := range map[string][]string{
		`object.x == 1`: nil,
		`same.size() + count("nodes.name", "x") + list("nodes").size() == 0`: {"nodes", "pods"},
		`get("nodes", "", "x") == null`:                                      {"nodes"},
		`[same].size() == 1 && changed("spec")`:                              {"pods"},
	} {
		if got := compile(t, text, cel.Filter).Sources(); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}

// A define is evaluated where its name is needed and once.
func TestDefineIsLazyAndEvaluatedOnce(t *testing.T) {
	env, err := cel.NewEnv(cel.EnvConfig{
		Define: map[string]string{
			"heavy": `object.n.map(a, object.n.filter(b, a + b == 0).size()).size()`,
			"twice": `heavy + heavy`,
		},
	})
	must.Succeed(t, err)
	text := `{"metadata": {"name": "x"}, "n": [` + strings.TrimSuffix(strings.Repeat("1,", 400), ",") + `]}`
	in := updated(t, text, text)
	for text, want := range map[string]string{
		// once is two thirds of the limit
		`twice + heavy + heavy + twice == 2100`:                                          "",
		`op == "added" && heavy == 1`:                                                    "",
		`heavy + heavy == object.n.map(a, object.n.filter(b, a + b == 0).size()).size()`: "cost",
	} {
		p, err := env.Compile(text, cel.Filter, "")
		must.Succeed(t, err)
		if _, err := p.Match(t.Context(), in); kindOf(err) != want {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
