package cases

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/deltarouter/deltarouter/pkg/config"
)

// values draws JSON values that events may contain.
func values(depth int) *rapid.Generator[any] {
	text := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{
		"", "yes", "No", "null", "~", "1", "0x10", "1e3", ".5", "a b", "a: b", "a #b", "- a", "${X}", "$${X}", "2026-01-01", "0 3 * * *", "a\nb", " a", "a ", "*", "&a", "!x", "{", "<<", "=", ".inf",
	}))
	scalar := rapid.OneOf(
		rapid.Map(text, func(s string) any { return strings.ToValidUTF8(s, "?") }),
		rapid.Map(rapid.Int64(), func(i int64) any { return json.Number(fmt.Sprint(i)) }),
		rapid.Map(rapid.Bool(), func(b bool) any { return b }),
		rapid.Just[any](nil), rapid.Just[any](json.Number("1.50")), rapid.Just[any](json.Number("18446744073709551615")),
	)
	if depth == 0 {
		return scalar
	}
	below := values(depth - 1)
	return rapid.OneOf(scalar,
		rapid.Map(rapid.SliceOfN(below, 0, 3), func(l []any) any { return l }),
		rapid.Map(rapid.MapOfN(rapid.Map(text, func(s string) string { return strings.ToValidUTF8(s, "?") }), below, 0, 3), func(m map[string]any) any { return m }),
	)
}

// TestRenderIsRead shows that a rendered value is read as the same value.
func TestRenderIsRead(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		value := values(3).Draw(rt, "value")
		text := strings.Join(entry{{"data", value}}.lines(), "\n")
		root, problems := config.ParseNode("x.yaml", []byte(text))
		if len(problems) > 0 {
			rt.Fatalf("%v\n%s", problems, text)
		}
		got, err := valueOf(root.Items()[0].At("data"))
		if err != nil {
			rt.Fatalf("%v\n%s", err, text)
		}
		if !reflect.DeepEqual(got, value) {
			rt.Fatalf("%#v was read as %#v\n%s", value, got, text)
		}
	})
}

// TestWithin shows that a value and each part of it match the value, and that a matching value is
// shown as expected.
func TestWithin(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		value := values(3).Draw(rt, "value")
		if !within(value, value, true) || !within(value, value, false) {
			rt.Fatalf("%v is not within itself", value)
		}
		if o, ok := value.(object); ok && len(o) > 0 {
			more := make(object)
			for key, v := range o {
				more[key] = v
			}
			more["one more\x00"] = true
			if !within(o, more, false) || within(o, more, true) {
				rt.Fatalf("%v in %v", o, more)
			}
			if got := shown(o, more); !reflect.DeepEqual(got, value) {
				rt.Fatalf("%v is shown as %v", more, got)
			}
		}
	})
	for _, c := range []struct {
		want, got string
		same      bool
	}{
		{`1`, `1.0`, true},
		{`9007199254740993`, `9007199254740992`, false},
		{`1`, `"1"`, false},
		{`[1]`, `[1,2]`, false},
		{`{"a":null}`, `{}`, true},
		{`{"a":null}`, `{"a":1}`, false},
		{`{"a":null}`, `{"a":{}}`, false},
		{`[{"a":1}]`, `[{"a":1,"b":2}]`, true},
		{`{}`, `null`, false},
	} {
		want, _ := decode([]byte(c.want))
		got, _ := decode([]byte(c.got))
		if within(want, got, false) != c.same {
			t.Errorf("%s in %s: %v", c.want, c.got, !c.same)
		}
	}
}

// TestUnified shows that the edits of a comparison turn one text into the other.
func TestUnified(t *testing.T) {
	line := rapid.SampledFrom([]string{"a", "b", "- route: x"})
	rapid.Check(t, func(rt *rapid.T) {
		want, got := rapid.SliceOf(line).Draw(rt, "want"), rapid.SliceOf(line).Draw(rt, "got")
		var a, b []string
		for _, e := range compare(want, got) {
			if e.mark != '+' {
				a = append(a, e.line)
			}
			if e.mark != '-' {
				b = append(b, e.line)
			}
		}
		if strings.Join(a, "\n") != strings.Join(want, "\n") || strings.Join(b, "\n") != strings.Join(got, "\n") {
			rt.Fatalf("%v and %v became %v and %v", want, got, a, b)
		}
		if same := strings.Join(want, "\n") == strings.Join(got, "\n") && len(want) == len(got); (unified(want, got) == "") != same {
			rt.Fatalf("%v and %v: %s", want, got, unified(want, got))
		}
	})
}

// TestAlign shows that each expectation and each result is in one pair, that both keep their order,
// and that the number of fulfilled expectations is the largest possible.
func TestAlign(t *testing.T) {
	letter := rapid.SampledFrom([]string{"a", "b", "c"})
	rapid.Check(t, func(rt *rapid.T) {
		var want []*expectation
		var got []*result
		for _, s := range rapid.SliceOfN(letter, 0, 8).Draw(rt, "want") {
			want = append(want, &expectation{Subject: s})
		}
		for _, s := range rapid.SliceOfN(letter, 0, 8).Draw(rt, "got") {
			got = append(got, &result{subject: s})
		}
		i, j, met := 0, 0, 0
		for _, p := range align(want, got) {
			if p.want != nil {
				if p.want != want[i] {
					rt.Fatal("out of order")
				}
				i++
			}
			if p.got != nil {
				if p.got != got[j] {
					rt.Fatal("out of order")
				}
				j++
			}
			if p.ok() {
				met++
			}
		}
		best := table(len(want), len(got), func(i, j int) bool { return want[i].meets(got[j]) })[0][0]
		if i != len(want) || j != len(got) || met < best {
			rt.Fatalf("%d of %d, %d of %d, %d met of %d", i, len(want), j, len(got), met, best)
		}
	})
}

const fuzzed = `version: 1
sources: {pods: {resource: v1/pods}, nodes: {resource: v1/nodes}}
sinks: {out: {stdout: {}}, hook: {stdout: {}}}
routes: [{name: r, from: pods, to: [out, hook]}, {name: s, from: nodes, to: out}]
`

// FuzzFile reads arbitrary files. A file without problems is either rewritten with changes in
// expectations only, or refused.
func FuzzFile(f *testing.F) {
	f.Add("cases:\n  - name: a\n    given: {objects: {pods: [{metadata: {name: a}}]}, deltas: [{source: pods, updated: {metadata: {name: a}}}]}\n    expect: none\n")
	f.Add("cases:\n  - expect:\n    - {route: r, data: {a: 1}}\n    name: a\n  # x\n\n  - name: b\n    expect: [\n]\n")
	f.Add("shared: &a [{route: s}]\ncases:\n- name: a\n  expect: *a\n-   name: 'b'\n    given: {deltas: [{source: pods, deleted: x}]}\n")
	cfg, problems := config.Parse("config.yaml", []byte(fuzzed), config.Policy{})
	if len(problems) > 0 {
		f.Fatal(problems)
	}
	f.Fuzz(func(t *testing.T, text string) {
		doc, problems := parseFile("config_test.yaml", []byte(text))
		if len(problems) > 0 {
			return
		}
		c := &checker{cfg: cfg}
		if c.check(doc, true); len(c.problems) > 0 {
			return
		}
		for i, tc := range doc.Cases {
			lines, err := tc.rewrite(strings.Split(strings.TrimSuffix(text, "\n"), "\n"), []string{"- route: s", "  error: fuzzed"})
			fresh := strings.Join(lines, "\n") + "\n"
			if err != nil || doc.unlike("config_test.yaml", fresh) != nil {
				continue
			}
			again, problems := parseFile("config_test.yaml", []byte(fresh))
			if len(problems) > 0 {
				t.Fatalf("%v\n%s", problems, fresh)
			}
			if got, err := again.Cases[i].Expect.JSON(); err != nil || string(got) != `[{"route":"s","error":"fuzzed"}]` {
				t.Fatalf("case %d expects %s, %v\n%s", i, got, err, fresh)
			}
		}
	})
}
