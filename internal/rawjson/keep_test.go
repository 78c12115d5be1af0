package rawjson_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/rawjson"
	"github.com/deltarouter/deltarouter/test/must"
)

func selection(paths ...string) *rawjson.Selection {
	s := rawjson.NewSelection()
	for _, path := range paths {
		s.Add(strings.Split(path, ".")...)
	}
	return s
}

func TestSelection(t *testing.T) {
	// Guarantee: handler-fields
	tests := []struct {
		name, src string
		paths     []string
		want      string
	}{
		{"one", `{"a":1,"b":2,"c":3}`, []string{"b"}, `{"b":2}`},
		{"order of the text", `{"a":1,"b":2,"c":3}`, []string{"c", "a"}, `{"a":1,"c":3}`},
		{"nested", `{"m":{"x":[1,{"y":2}],"z":3},"b":2}`, []string{"m.x"}, `{"m":{"x":[1,{"y":2}]}}`},
		{"nested, and more behind it", `{"m":{"x":1,"z":{"y":"}"},"w":3},"b":{"c":1,"d":2},"e":5}`, []string{"m.x", "b.c", "e"}, `{"m":{"x":1},"b":{"c":1},"e":5}`},
		{"deep, and more behind it", `{"a":{"b":{"c":{"d":1,"e":[{}]},"f":2}},"g":"{"}`, []string{"a.b.c.d", "g"}, `{"a":{"b":{"c":{"d":1}}},"g":"{"}`},
		{"spaces", ` { "a" : 1 , "b" : { "c" : [ 1 , 2 ] , "d" : 3 } } `, []string{"b.c"}, `{"b":{"c":[ 1 , 2 ]}}`},
		{"a list of objects", `{"m":[{"x":1,"y":2},{"y":2},{"x":{}}],"n":1}`, []string{"m.x", "n"}, `{"m":[{"x":1},{},{"x":{}}],"n":1}`},
		{"a list of lists", `{"m": [ [ {"x":1,"y":2} , 3 ] , [] ], "n": 1}`, []string{"m.x"}, `{"m":[[{"x":1},3],[]]}`},
		{"absent", `{"a":1}`, []string{"b"}, `{}`},
		{"absent below", `{"m":{"y":1},"a":2}`, []string{"m.x"}, `{"m":{}}`},
		{"no object on the way", `{"a":"text","b":null,"c":[],"d":5}`, []string{"a.x", "b.x", "c.x", "d.x.y"}, `{"a":"text","b":null,"c":[],"d":5}`},
		{"below another", `{"m":{"x":1,"y":2},"n":3}`, []string{"m.x", "m"}, `{"m":{"x":1,"y":2}}`},
		{"above another", `{"m":{"x":1,"y":2},"n":3}`, []string{"m", "m.x"}, `{"m":{"x":1,"y":2}}`},
		{"escaped", `{"\u0061":"\"","b":"\\"}`, []string{"a", "b"}, `{"\u0061":"\"","b":"\\"}`},
		{"empty", `{}`, []string{"a"}, `{}`},
		{"nothing", `{"a":1}`, nil, `{}`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			must.Succeed(t, rawjson.Check(test.src))
			if got := string(selection(test.paths...).Append([]byte("x"), test.src)); got != "x"+test.want {
				t.Errorf("got %s, want %s", got[1:], test.want)
			}
		})
	}
}

// FuzzSelection compares the kept text with the result of encoding/json and a selection from maps.
func FuzzSelection(f *testing.F) {
	f.Add(`{"a":1,"b":{"c":[{"d":1},2]},"c":3}`, "a b.c.d c")
	f.Add(`{ "a" : "x" , "b" : [ ] , "c" : {"d":{"e":"\\"},"f":[[{}]]} }`, "c.d.e b c.f.a")
	f.Add(`{"m":{"x":1,"y":{"z":{}}},"n":[{"x":{"y":{},"z":2},"w":"]"},1]}`, "n.x.y m.x")
	f.Fuzz(func(t *testing.T, src, list string) {
		paths := strings.Fields(list)
		if rawjson.Check(src) != nil || rawjson.Trim(src).Kind() != rawjson.Object || len(paths) > 8 {
			return
		}
		got := string(selection(paths...).Append(nil, src))
		if err := rawjson.Check(got); err != nil {
			t.Fatalf("%s: %v", got, err)
		}
		split := make([][]string, len(paths))
		for i, path := range paths {
			split[i] = strings.Split(path, ".")
		}
		if have, want := decode(t, got), kept(decode(t, src), split); !reflect.DeepEqual(have, want) {
			t.Fatalf("%v of %s is %s", paths, src, got)
		}
	})
}

// kept returns a value without the members that are on none of the paths.
func kept(v any, paths [][]string) any {
	if slices.ContainsFunc(paths, func(path []string) bool { return len(path) == 0 }) {
		return v
	}
	switch v := v.(type) {
	case map[string]any:
		for key, member := range v {
			var below [][]string
			for _, path := range paths {
				if path[0] == key {
					below = append(below, path[1:])
				}
			}
			if below == nil {
				delete(v, key)
			} else {
				v[key] = kept(member, below)
			}
		}
	case []any:
		for i, elem := range v {
			v[i] = kept(elem, paths)
		}
	}
	return v
}

func BenchmarkSelection(b *testing.B) {
	src := pod(b)
	s := selection("metadata.name", "metadata.namespace", "metadata.uid", "metadata.resourceVersion", "status.phase")
	var kept []byte
	for b.Loop() {
		if kept = s.Append(kept[:0], src); len(kept) == 0 {
			b.Fatal("nothing is kept")
		}
	}
}
