package fieldpath

import (
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/cel/jsonval"
	"github.com/deltarouter/deltarouter/internal/cel/schema"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/test/must"
)

// FuzzPath: no text makes the parser of paths panic, the place of a mistake is inside of the text,
// and a path that Below writes can be parsed.
func FuzzPath(f *testing.F) {
	for _, text := range []string{
		"spec.containers[*].image", `metadata.annotations["a.b/c"]`, "a[0]['b'][c]", "a..b", "a[", "a.", "[*][*]", "", `a["b`, "ü.ß[é]",
	} {
		f.Add(text)
	}
	text := &schema.Type{Kind: schema.String}
	list := &schema.Type{Kind: schema.List, Elem: &schema.Type{Kind: schema.Map, Elem: text}}
	spec := &schema.Type{Kind: schema.Object, Name: "spec", Fields: map[string]schema.Field{
		"containers": {Type: list}, "a-b": {Type: text}, "c.d": {Type: text}, "any": {Type: &schema.Type{}},
	}}
	of := &schema.Type{Kind: schema.Object, Name: "object", Fields: map[string]schema.Field{
		"metadata": {Type: &schema.Type{Kind: schema.Map, Elem: text}}, "spec": {Type: spec}, "a": {Type: list},
	}}
	const object = `{"metadata": {"name": "x"}, "a": [{"b": 1}, {"c": [1, 2]}], "spec": {"containers": {"a": {"image": 1}}}}`
	f.Fuzz(func(t *testing.T, text string) {
		p, err := Parse(text)
		if err != nil {
			if failed := err.(*Error); failed.At < 0 || failed.At > len(text) { //nolint:errorlint,forcetypeassert // as promised
				t.Error(failed)
			}
			return
		}
		if failed := p.Check(text, of); failed != nil && failed.At > len(text) {
			t.Error(failed)
		}
		obj, err := event.ParseObject(&event.Resource{}, object)
		must.Succeed(t, err)
		if m := jsonval.NewMeter(1 << 30); p.Differs(obj, obj, &m) || p.Exists(obj, &m) != p.Differs(nil, obj, &m) {
			t.Error("it differs from itself, or is not there and there")
		}
		if strings.Contains(text, `"]`) {
			return
		}
		again, err := Parse(Below(Below("x", text), text))
		if err != nil || len(again) != 3 || again[1].Key != text || again[2].All {
			t.Errorf("%q: %v %v", text, again, err)
		}
	})
}
