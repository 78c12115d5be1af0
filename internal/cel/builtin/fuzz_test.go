package builtin

import (
	"testing"

	"github.com/google/cel-go/common/types"

	"github.com/deltarouter/deltarouter/internal/cel/jsonval"
	"github.com/deltarouter/deltarouter/internal/cel/schema"
	"github.com/deltarouter/deltarouter/internal/cel/typeset"
	"github.com/deltarouter/deltarouter/internal/rawjson"
)

// FuzzDiff: of any two objects diff finds the same in both directions, and nothing if they are
// equal.
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
	field := func(kind schema.Kind) schema.Field { return schema.Field{Type: &schema.Type{Kind: kind}} }
	thing := &schema.Type{Kind: schema.Object, Name: "thing", Fields: map[string]schema.Field{
		"name": field(schema.String), "weight": field(schema.Double), "at": field(schema.Date),
	}}
	spec := jsonval.TypeInfos{}.Of(&schema.Type{Kind: schema.Object, Name: "spec", Fields: map[string]schema.Field{
		"number": field(schema.Double), "day": field(schema.Date), "every": field(schema.Duration), "data": field(schema.Bytes),
		"port": field(schema.IntOrString), "on": field(schema.Bool), "count": field(schema.Int), "since": field(schema.Timestamp),
		"things":   {Type: &schema.Type{Kind: schema.List, Elem: thing, ListType: "map", Keys: []string{"name"}}},
		"names":    {Type: &schema.Type{Kind: schema.List, Elem: &schema.Type{Kind: schema.String}, ListType: "set"}},
		"nullable": {Type: &schema.Type{Kind: schema.List, Elem: &schema.Type{Kind: schema.String, Nullable: true}}},
		"byName":   {Type: &schema.Type{Kind: schema.Map, Elem: thing}},
	}})
	f.Fuzz(func(t *testing.T, one, two string) {
		if rawjson.Check(one) != nil || rawjson.Check(two) != nil {
			return
		}
		for _, s := range []*jsonval.TypeInfo{nil, spec} {
			find := func(a, b string) (found [][3]string) {
				meter := jsonval.NewMeter(1 << 30)
				d := differ{meter: &meter}
				d.compare("", rawjson.Trim(a), rawjson.Trim(b), s, 0)
				for _, v := range d.found {
					entry := v.(*typeset.Record)
					var texts [3]string
					for i, key := range []string{"path", "old", "new"} {
						w := jsonval.NewWriter()
						if w.Value(entry.Get(types.String(key))) == nil {
							texts[i] = string(w.Take())
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
