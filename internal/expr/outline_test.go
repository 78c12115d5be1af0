package expr_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/expr"
	"github.com/deltarouter/deltarouter/test/must"
)

func outlineText(o *expr.Outline) string {
	switch {
	case o.Text != nil:
		return *o.Text
	case !o.Map:
		return "?"
	}
	var members []string
	for i := range o.Members {
		m := &o.Members[i]
		members = append(members, fmt.Sprintf("%s@%s%d=%s", m.Key, m.At.Define, m.At.Column, outlineText(&m.Value)))
	}
	if !o.All {
		members = append(members, "...")
	}
	return "{" + strings.Join(members, " ") + "}"
}

// Outlines sees the literals of an emit where they stand, also behind defines, but not behind a
// variable that has the name of a define.
func TestOutlines(t *testing.T) {
	define := map[string]string{
		"body": `{"b": op}`, "event": `{"a": body}`, "both": `[event2, {"c": "text"}]`, "event2": `dyn({"a": body, op: 1})`, "name": `"n"`,
	}
	delete(define, "event") // the name is taken
	env, err := expr.NewEnv(expr.EnvConfig{Define: define})
	must.Succeed(t, err)
	for text, want := range map[string]string{
		`{"a": {"b": "text"}}`: "{a@1={b@7=text}}",
		`event2`:               "{a@event25={b@body1=?} ...}",
		`op == "added" ? both : [{"x": name, name: 1}]`: "{a@event25={b@body1=?} ...}|{c@both10=text}|{x@25=n ...}",
		`{"x": body}`:                                               "{x@1={b@body1=?}}",
		`[{"y": 1}].map(body, {"x": body})`:                         "{x@22=?}",
		`cel.bind(body, {"y": op}, {"x": body, "z": name})`:         "{x@27=? z@38=n}",
		`[1].map(body, {"x": [2].map(name, name), "z": body})`:      "{x@15=? z@41=?}",
		`event(body).withType(name)`:                                "{b@body1=?}",
		`[{"y": 1}].filter(x, true).map(z, {"x": body}) + [event2]`: "{x@35={b@body1=?}}|{a@event25={b@body1=?} ...}",
	} {
		p, err := env.Compile(text, expr.Emit)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		var got []string
		for _, o := range p.Outlines() {
			got = append(got, outlineText(&o))
		}
		if got := strings.Join(got, "|"); got != want {
			t.Errorf("%s:\n got %s\nwant %s", text, got, want)
		}
	}
}

// Defines that use others twice multiply: of 2^28 events the outlines are bounded.
func TestOutlinesAreBounded(t *testing.T) {
	define := map[string]string{"d0": `{"a": 1}`, "m0": `{"a": 1}`}
	for i := 1; i <= 28; i++ {
		define[fmt.Sprint("d", i)] = fmt.Sprintf("[d%d, d%d]", i-1, i-1)
		define[fmt.Sprint("m", i)] = fmt.Sprintf(`{"a": m%d, "b": m%d}`, i-1, i-1)
	}
	env, err := expr.NewEnv(expr.EnvConfig{Define: define})
	must.Succeed(t, err)
	for _, text := range []string{"m28", "d1 + dyn(d28)"} {
		p, err := env.Compile(text, expr.Emit)
		must.Succeed(t, err)
		if n := len(p.Outlines()); n == 0 || n > 10_000 {
			t.Errorf("%s: %d outlines", text, n)
		}
	}
}
