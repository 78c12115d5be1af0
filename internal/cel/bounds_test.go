package cel_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/test/must"
)

// within repeats what is written around the middle of a text.
func within(n int, before, middle, after string) string {
	return strings.Repeat(before, n) + middle + strings.Repeat(after, n)
}

// joined repeats a text with a separator.
func joined(n int, text, separator string) string {
	return strings.TrimSuffix(strings.Repeat(text+separator, n), separator)
}

// The checker of CEL takes the fourth power of the depth of a type, and cannot be interrupted.
func TestCompileBounds(t *testing.T) {
	env := environment(t)
	const deep, long, open = "more than 30 deep", "more than 4000 parts", "variables of macros are empty"
	chain := func(value string) string {
		text := "x0 == x1"
		for i := 40; i > 0; i-- {
			text = fmt.Sprintf("cel.bind(x%d, %s, x%d == [x%d] || %s)", i, value, i, i-1, text)
		}
		return "cel.bind(x0, [], " + text + ")"
	}
	for name, test := range map[string]struct {
		text, want string // a part of the error; empty: none
	}{
		"maps at the bound":       {"size(" + within(30, `{"a": `, "1", "}") + ") > 0", ""},
		"maps":                    {"size(" + within(31, `{"a": `, "1", "}") + ") > 0", deep},
		"lists":                   {"size(" + within(31, "[", "1", "]") + ") > 0", deep},
		"dyn ends a type":         {"size(" + within(20, "[", "dyn("+within(20, "[", "1", "]")+")", "]") + ") > 0", ""},
		"optional values":         {within(31, "optional.of(", "1", ")") + " == 1", deep},
		"types":                   {within(31, "type(", "1", ")") + " == type(1)", deep},
		"map()":                   {within(31, "[1].map(x, ", "1", ")") + " == []", deep},
		"transformMap()":          {within(31, "[1].transformMap(k, v, ", "1", ")") + " == {}", deep},
		"cel.bind()":              {"cel.bind(x, " + within(20, "[", "1", "]") + ", " + within(11, "[", "x", "]") + " == [])", deep},
		"a chain of open types":   {chain("[]"), open},
		"a chain of dyn":          {chain("dyn([])"), ""},
		"optional fields":         {"object" + strings.Repeat(".?a", 40) + ".hasValue()", ""},
		"defaults":                {joined(40, "object.?a.orValue({}).map(k, k).size() > 0", " || "), ""},
		"calls that nest no type": {within(40, "size(string(", "1", "))") + " > 0", ""},
		"nodes":                   {joined(1400, "[] == []", " || "), long},
		"nodes of macros":         {joined(500, "[1].exists(x, x > 1)", " || "), long},
		"nodes below the bound":   {joined(800, "op == 'x'", " || "), ""},
		"nodes with defines":      {"x1 && x2 && x3 && x4", "parts together, 4000 at most"},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "nodes with defines" {
				cfg := cel.EnvConfig{Define: map[string]string{}}
				for i := range 5 {
					cfg.Define[fmt.Sprint("x", i)] = joined(300, "op == 'x'", " || ")
				}
				env, err := cel.NewEnv(cfg)
				must.Succeed(t, err)
				expectBound(t, env, test.text, test.want)
				return
			}
			expectBound(t, env, test.text, test.want)
		})
	}
}

func expectBound(t *testing.T, env *cel.Env, text, want string) {
	t.Helper()
	_, err := env.Compile(text, cel.Filter, "pods")
	switch {
	case want == "" && err != nil:
		t.Error(err)
	case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
		t.Errorf("got %v, want %s", err, want)
	}
}

// The types of defines that use each other count as one type.
func TestCompileBoundsOfDefines(t *testing.T) {
	define := map[string]string{"d0": "[1]"}
	for i := 1; i <= 30; i++ {
		define[fmt.Sprint("d", i)] = fmt.Sprintf("[d%d]", i-1)
	}
	_, err := cel.NewEnv(cel.EnvConfig{Define: define})
	if err == nil || !strings.Contains(err.Error(), "define d30: 1:1: nests lists") {
		t.Errorf("got %v", err)
	}
}

// Each level of defines had an environment with the variables of all levels below it.
func TestNumberOfDefines(t *testing.T) {
	for _, test := range []struct {
		chain, count int
		want         string
	}{
		{100, 500, ""},
		{101, 101, "chain of more than 100 defines"},
		{1, 501, "is one of 501 defines, 500 at most"},
		{5000, 5000, "500 at most"},
	} {
		define := map[string]string{"d0": `op == "x"`}
		for i := 1; i < test.count; i++ {
			define[fmt.Sprint("d", i)] = fmt.Sprint("d", i-1)
			if i >= test.chain {
				define[fmt.Sprint("d", i)] = "true"
			}
		}
		_, err := cel.NewEnv(cel.EnvConfig{Define: define})
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%d in a chain of %d: %v", test.count, test.chain, err)
		}
	}
}
