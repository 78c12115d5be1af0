package rawjson_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/rawjson"
	"github.com/deltarouter/deltarouter/test/must"
)

func TestValue(t *testing.T) {
	v := rawjson.Trim(` {"a" : {"b" : [1, "two", {"c" : null}, true]} , "q\"k": "x\u0041\n\ud83d\ude00\ud800", "": 0, "long key of the object": -1.5e3 } `)
	tests := []struct {
		name string
		got  rawjson.Value
		want string
	}{
		{"path", v.Path("a", "b"), `[1, "two", {"c" : null}, true]`},
		{"missing", v.Path("a", "x", "y"), ``},
		{"escaped key", v.Get(`q"k`), `"x\u0041\n\ud83d\ude00\ud800"`},
		{"escaped key as written", v.Get(`q\"k`), ``},
		{"empty key", v.Get(""), `0`},
		{"long key", v.Get("long key of the object"), `-1.5e3`},
		{"key of no object", v.Path("a", "b", "c"), ``},
	}
	for _, test := range tests {
		if string(test.got) != test.want {
			t.Errorf("%s: %q, want %q", test.name, test.got, test.want)
		}
	}
	if got, want := v.Get(`q"k`).Str(), "xA\n😀\uFFFD"; got != want {
		t.Errorf("Str = %q, want %q", got, want)
	}
	kinds := make([]rawjson.Kind, 0, 4)
	for elem := range v.Path("a", "b").Elems() {
		kinds = append(kinds, elem.Kind())
	}
	if want := []rawjson.Kind{rawjson.Number, rawjson.String, rawjson.Object, rawjson.Bool}; !reflect.DeepEqual(kinds, want) {
		t.Errorf("kinds = %v, want %v", kinds, want)
	}
}

// FuzzValue rebuilds a document through Fields, Elems, Get and Str and compares it with
// encoding/json.
func FuzzValue(f *testing.F) {
	f.Add(`{"a":[1,2.5,true,null,"x\nA\ud83d\ude00"],"b":{"c\"d":{}},"":[[],{}]}`)
	f.Add(` [ "0123456789" , { "k" : "\\" } ] `)
	f.Fuzz(func(t *testing.T, src string) {
		if rawjson.Check(src) != nil {
			_ = rawjson.Trim(src).Get("a").Str() // undefined, but must not panic
			for _, v := range rawjson.Value(src).Fields() {
				_ = v.Str()
			}
			return
		}
		d := json.NewDecoder(strings.NewReader(src))
		d.UseNumber()
		var want any
		must.Succeed(t, d.Decode(&want))
		if got := build(t, rawjson.Trim(src)); !reflect.DeepEqual(got, want) {
			t.Fatalf("got %#v, want %#v", got, want)
		}
	})
}

func build(t *testing.T, v rawjson.Value) any {
	t.Helper()
	switch v.Kind() {
	case rawjson.Null:
		return nil
	case rawjson.Bool:
		return v.IsTrue()
	case rawjson.Number:
		return json.Number(v)
	case rawjson.String:
		return v.Str()
	case rawjson.Array:
		list := []any{}
		for elem := range v.Elems() {
			list = append(list, build(t, elem))
		}
		return list
	case rawjson.Object:
		m := map[string]any{}
		for key, field := range v.Fields() {
			if got := v.Get(key); got != field {
				t.Fatalf("Get(%q) = %q, Fields says %q", key, got, field)
			}
			m[key] = build(t, field)
		}
		return m
	case rawjson.Absent:
	}
	t.Fatal("no value")
	return nil
}
