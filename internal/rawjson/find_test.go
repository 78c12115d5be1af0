package rawjson_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/rawjson"
	"github.com/deltarouter/deltarouter/test/must"
)

func cut(t *testing.T, src string, paths ...string) string {
	t.Helper()
	f := rawjson.NewFinder()
	for i, path := range paths {
		f.Skip(i, strings.Split(path, ".")...)
	}
	end, spans, err := f.Scan(src, 0)
	must.Succeed(t, err)
	return strings.Join(rawjson.Cut(nil, src, 0, end, spans), "")
}

func TestCut(t *testing.T) {
	tests := []struct {
		name, src string
		paths     []string
		want      string
	}{
		{"first", `{"a":1,"b":2}`, []string{"a"}, `{"b":2}`},
		{"last", `{"a":1,"b":2}`, []string{"b"}, `{"a":1}`},
		{"only", `{"a":1}`, []string{"a"}, `{}`},
		{"all", `{"a":1,"b":2,"c":3}`, []string{"c", "b", "a"}, `{}`},
		{"two at the end", `{"a":1,"b":2,"c":3}`, []string{"b", "c"}, `{"a":1}`},
		{"two at the end with spaces", `{ "a": 1 , "b": 2 , "c": 3 }`, []string{"b", "c"}, `{ "a": 1 }`},
		{"all with spaces", `{ "a": 1 , "b": 2 }`, []string{"a", "b"}, `{}`},
		{"nested", `{"m":{"x":[1,{"y":2}],"z":3},"b":2}`, []string{"m.x"}, `{"m":{"z":3},"b":2}`},
		{"nested last", `{"m":{"z":3,"x":[1,{"y":"}"}]}}`, []string{"m.x"}, `{"m":{"z":3}}`},
		{"in and around", `{"m":{"x":1,"y":2},"b":2}`, []string{"m", "m.x"}, `{"b":2}`},
		{"through a list", `{"m":[{"x":1,"y":2},{"x":1},3,[{"x":5}]]}`, []string{"m.x"}, `{"m":[{"y":2},{},3,[{}]]}`},
		{"escaped", `{"\u0061":1,"b":2}`, []string{"a"}, `{"b":2}`},
		{"missing", `{"a":1}`, []string{"x", "a.b"}, `{"a":1}`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := cut(t, test.src, test.paths...); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

func TestFind(t *testing.T) {
	const src = ` {"type":"ADDED", "object" : {"x":[1,2]},"é":1}`
	f := rawjson.NewFinder()
	f.Find(7, "object")
	f.Find(3, "object", "x")
	end, spans, err := f.Scan(src, 0)
	if err != nil || end != len(src) || f.ASCII() {
		t.Fatal(end, err, f.ASCII())
	}
	got := make(map[int]string)
	for _, s := range spans {
		got[s.ID] = src[s.Key:s.Start] + "|" + src[s.Start:s.End]
	}
	if want := map[int]string{7: `"object" : |{"x":[1,2]}`, 3: `"x":|[1,2]`}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if _, _, err := f.Scan(`{"a":"plain"}`, 0); err != nil || !f.ASCII() {
		t.Error(err, f.ASCII())
	}
}

// FuzzCut compares the remaining text with the result of encoding/json and deletions from maps.
func FuzzCut(f *testing.F) {
	f.Add(`{"a":1,"b":{"c":[{"d":1},2]},"c":3}`, "a b.c.d c")
	f.Add(`{ "a" : "x" , "b" : [ ] }`, "b a")
	f.Fuzz(func(t *testing.T, src, list string) {
		paths := strings.Fields(list)
		if rawjson.Check(src) != nil || len(paths) == 0 || slices.ContainsFunc(paths, func(p string) bool { return strings.Contains(p, "..") }) {
			return
		}
		got := cut(t, src, paths...)
		if err := rawjson.Check(got); err != nil {
			t.Fatalf("%s: %v", got, err)
		}
		want, have := decode(t, src), decode(t, got)
		for _, path := range paths {
			remove(want, strings.Split(path, "."))
		}
		if !reflect.DeepEqual(have, want) {
			t.Fatalf("%s less %v is %s", src, paths, got)
		}
	})
}

func decode(t *testing.T, src string) (v any) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(src))
	d.UseNumber()
	must.Succeed(t, d.Decode(&v))
	return v
}

func remove(v any, path []string) {
	switch v := v.(type) {
	case map[string]any:
		if len(path) == 1 {
			delete(v, path[0])
		} else {
			remove(v[path[0]], path[1:])
		}
	case []any:
		for _, elem := range v {
			remove(elem, path)
		}
	}
}
