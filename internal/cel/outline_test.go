package cel_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/test/must"
)

func outlineText(o *cel.Outline) string {
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
	env, err := cel.NewEnv(cel.EnvConfig{Define: define})
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
		p, err := env.Compile(text, cel.Emit)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		var got []string
		found, _ := p.Outlines()
		for _, o := range found {
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
	env, err := cel.NewEnv(cel.EnvConfig{Define: define})
	must.Succeed(t, err)
	for _, text := range []string{"m28", "d1 + dyn(d28)"} {
		p, err := env.Compile(text, cel.Emit)
		must.Succeed(t, err)
		found, _ := p.Outlines()
		if n := len(found); n == 0 || n > 10_000 {
			t.Errorf("%s: %d outlines", text, n)
		}
	}
}

// All events of an emit are known only if each of them is a literal map.
func TestAllOutlines(t *testing.T) {
	env, err := cel.NewEnv(cel.EnvConfig{Define: map[string]string{"body": `{"b": op}`}})
	must.Succeed(t, err)
	for text, want := range map[string]bool{
		`{"a": op}`:                               true,
		`op == "added" ? dyn({"a": op}) : null`:   true,
		`[event(body), {"a": op}]`:                true,
		`[1, 2].map(x, {"x": x})`:                 true,
		`op == "added" ? dyn({"a": op}) : object`: false,
		`[dyn({"a": op}), object.metadata]`:       false,
		`[{"a": op}].filter(x, true)`:             false,
		`object.metadata.labels`:                  false,
	} {
		p, err := env.Compile(text, cel.Emit)
		must.Succeed(t, err)
		if _, all := p.Outlines(); all != want {
			t.Errorf("%s: %v", text, all)
		}
	}
}

// TestEventReads shows which reads of an event fail without the member. The last ones of a row are
// in a branch or a loop.
func TestEventReads(t *testing.T) {
	for text, want := range map[string]string{
		`event.data.a.b + event.subject`:             "data.a.b@13! subject@23!",
		`event.data["a"].b`:                          "data.a.b@16!",
		`event.data.names[0]`:                        "data.names@11!",
		`event.data.?a.orValue(event.data.b)`:        "data@6! data.b@33",
		`event.?data.a.orValue("")`:                  "",
		`has(event.data.a) ? event.data.a : "x"`:     "data@10!",
		`"a" in event.data ? event.data.a : "x"`:     "data@13!",
		`event.type == "x" ? event.data.a : "y"`:     "type@6! data.a@31",
		`event.data.a == 1 || event.data.b == 2`:     "data.a@11 data.b@32",
		`event.data.list.map(x, x.y + event.data.a)`: "data.list@11! data.a@40",
		`[{"b": 1}].map(event, event.b)`:             "",
		`event`:                                      "",
	} {
		p, err := cel.CompileEvent(text)
		must.Succeed(t, err)
		var got []string
		for _, read := range p.Reads() {
			text := fmt.Sprintf("%s@%d", strings.Join(read.Path, "."), read.At[len(read.At)-1].Column)
			if read.Always {
				text += "!"
			}
			got = append(got, text)
		}
		if got := strings.Join(got, " "); got != want {
			t.Errorf("%s:\n got %s\nwant %s", text, got, want)
		}
	}
}
