package deltarouter

import (
	"bytes"
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"
	"testing/quick"
)

// TestAppendJSON compares the encoding without reflection with that of encoding/json.
func TestAppendJSON(t *testing.T) {
	for _, v := range []any{
		nil, true, false, "", "a", "\x00\x1f\"\\\b\f\n\r\t\v\u007f<&>é😀\u2028", "\xff\xc3a\xed\xa0\x80", 1, -1, math.MaxInt, math.MinInt, int32(-5), int64(7),
		1.5, 1e100, uint8(3),
		[]string{"a", "b"},
		[]string(nil),
		[]string{},
		[]any{1, "a", nil, []any{}},
		[]int64{1, 2},
		map[string]string{"b": "1", "a": "2"},
		map[string]string(nil),
		map[string]any{"x": map[string]any{"y": []string{"z"}}, "": nil},
		[]map[string]any{{"a": 1}},
		struct{ A string }{"<"},
		json.RawMessage(nil), json.RawMessage(`{"a": [1, "x y"]}`), &struct{}{},
	} {
		got, err := appendJSON([]byte("x"), v)
		if err != nil || !same(t, bytes.TrimPrefix(got, []byte("x")), v) {
			t.Errorf("%#v: got %q, %v", v, got, err)
		}
	}
	for _, v := range []any{func() {}, []byte("{"), map[string]any{"a": make(chan int)}, []any{math.NaN()}, json.RawMessage("")} {
		if _, err := appendJSON(nil, v); err == nil {
			t.Errorf("%v is accepted", v)
		}
	}
	if err := quick.Check(func(s string, raw []byte, m map[string]string) bool {
		for _, v := range []any{s, string(raw), m} {
			if got, err := appendJSON(nil, v); err != nil || !same(t, got, v) {
				return false
			}
		}
		return true
	}, nil); err != nil {
		t.Error(err)
	}
}

// same reports whether a text is equivalent to the encoding of v by encoding/json, keys included.
func same(t *testing.T, got []byte, v any) bool {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var a, b any
	return json.Unmarshal(got, &a) == nil && json.Unmarshal(text, &b) == nil && reflect.DeepEqual(a, b)
}

func TestScan(t *testing.T) {
	const text = ` { "a" : [1, -2 ,"x}\"]" ,{"b":[]}], "objects":[ {"c":[]} , "d" ] , "e":true}`
	if got := string(member([]byte(text), "e")); got != "true" {
		t.Errorf("got %s", got)
	}
	var got []string
	for _, e := range elements(member([]byte(text), "objects")) {
		got = append(got, string(e))
	}
	if strings.Join(got, "|") != `{"c":[]}|"d"` {
		t.Errorf("got %q", got)
	}
	for i := range text {
		for j := i; j <= len(text); j++ { // must return, and not panic
			elements([]byte(text[i:j]))
			elements(member([]byte(text[i:j]), "objects"))
		}
	}
}

func FuzzScan(f *testing.F) {
	f.Add([]byte(`{"objects":[{"a":"\""},1]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var want struct {
			Objects []json.RawMessage `json:"objects"`
		}
		got := elements(member(text, "objects"))
		var generic map[string]json.RawMessage
		if json.Unmarshal(text, &generic) != nil || json.Unmarshal(text, &want) != nil || strings.Count(strings.ToLower(string(text)), "objects") != 1 ||
			generic["objects"] == nil {
			return
		}
		if len(got) != len(want.Objects) {
			t.Fatalf("%s: %q, want %q", text, got, want.Objects)
		}
		for i := range got {
			if !bytes.Equal(got[i], want.Objects[i]) {
				t.Errorf("%s: %q, want %q", text, got[i], want.Objects[i])
			}
		}
	})
}
