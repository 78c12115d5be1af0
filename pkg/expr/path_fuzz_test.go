package expr

import (
	"strings"
	"testing"

	"github.com/google/cel-go/common/types"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/rawjson"
	"github.com/deltarouter/deltarouter/pkg/schema"
)

// FuzzPath: no text makes parsing a path panic, a mistake lies inside of the text, and what below writes is read again.
func FuzzPath(f *testing.F) {
	for _, text := range []string{
		"spec.containers[*].image", `metadata.annotations["a.b/c"]`, "a[0]['b'][c]", "a..b", "a[", "a.", "[*][*]", "", `a["b`, "ü.ß[é]",
	} {
		f.Add(text)
	}
	of := formats()
	const object = `{"metadata": {"name": "x"}, "a": [{"b": 1}, {"c": [1, 2]}], "spec": {"containers": {"a": {"image": 1}}}}`
	f.Fuzz(func(t *testing.T, text string) {
		p, err := parsePath(text)
		if err != nil {
			if failed := err.(*pathError); failed.at < 0 || failed.at > len(text) { //nolint:errorlint,forcetypeassert // as promised
				t.Error(failed)
			}
			return
		}
		if failed := p.check(text, of); failed != nil && failed.at > len(text) {
			t.Error(failed)
		}
		obj, err := event.ParseObject(&event.Resource{}, object)
		if err != nil {
			t.Fatal(err)
		}
		if m := (&meter{1 << 30}); p.differs(obj, obj, m) || p.exists(obj, m) != p.differs(nil, obj, m) {
			t.Error("it differs from itself, or is not there and there")
		}
		if strings.Contains(text, `"]`) {
			return
		}
		again, err := parsePath(below(below("x", text), text))
		if err != nil || len(again) != 3 || again[1].key != text || again[2].all {
			t.Errorf("%q: %v %v", text, again, err)
		}
	})
}

// FuzzDiff: of any two objects diff finds the same in both directions, and nothing if they are equal.
func FuzzDiff(f *testing.F) {
	for _, texts := range [][2]string{
		{`{"a": [1, {"name": "x", "b": null}]}`, `{"a": [1.0, {"name": "y"}]}`},
		{`{"things": [{"name": "a"}, {"name": "b"}]}`, `{"things": [{"name": "b"}]}`},
		{`[]`, `{}`},
		{`{"names": ["a", "b"]}`, `{"names": ["b", "a", null]}`},
		{`{"things": [{"name": "a"}, {"name": "a"}]}`, `{"things": null}`},
	} {
		f.Add(texts[0], texts[1])
	}
	spec := formats().Fields["spec"].Type
	env, err := NewEnv(EnvConfig{Types: map[string]*schema.Type{"s": spec}, Sources: map[string][]string{"s": nil}})
	if err != nil {
		f.Fatal(err)
	}
	p, err := env.Compile("true", Filter, "s")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, one, two string) {
		if rawjson.Check(one) != nil || rawjson.Check(two) != nil {
			return
		}
		for _, s := range []*shape{nil, env.shapes["s"]} {
			find := func(a, b string) (found [][3]string) {
				in := p.start(Input{})
				d := differ{in: in}
				d.compare("", rawjson.Trim(a), rawjson.Trim(b), s, 0)
				for _, v := range d.found {
					entry := v.(*record)
					var texts [3]string
					for i, key := range []string{"path", "old", "new"} {
						w := writer{room: maxOutput}
						if w.value(entry.Get(types.String(key))) == nil {
							texts[i] = string(w.out)
						}
					}
					found = append(found, texts)
				}
				return found
			}
			there, back := find(one, two), find(two, one)
			if len(find(one, one)) > 0 || len(there) != len(back) {
				t.Fatalf("%q and back %q", there, back)
			}
			for _, entry := range there {
				match := false
				for _, other := range back {
					match = match || other == [3]string{entry[0], entry[2], entry[1]}
				}
				if !match {
					t.Fatalf("%q is not in %q", entry, back)
				}
			}
		}
	})
}
