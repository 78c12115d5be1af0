package rawjson_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/deltarouter/deltarouter/internal/rawjson"
	"github.com/deltarouter/deltarouter/test/leaks"
)

func TestCheck(t *testing.T) {
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	many := func(n int, last string) string {
		var b strings.Builder
		b.WriteByte('{')
		for i := range n {
			fmt.Fprintf(&b, `"key-%d":%d,`, i, i)
		}
		return b.String() + `"` + last + `":0}`
	}
	tests := []struct {
		name, src, reason string
	}{
		{"null", `null`, ""},
		{"spaces", " \t\r\n {\n\"a\" : [ 1 , 2 ] , \"b\" : { } }\n ", ""},
		{"numbers", `[0,-0,1.5,-1e10,1E+5,9007199254740993,12345678901234567890123]`, ""},
		{"escapes", `"\"\\\/\b\f\n\r\tA😀"`, ""},
		{"long string", `"` + strings.Repeat("0123456789", 100) + `é"`, ""},
		{"deep enough", deep(rawjson.MaxDepth), ""},
		{"same key in two objects", `[{"a":1},{"a":1},{"b":{"a":1},"a":2}]`, ""},
		{"many keys", many(5000, "last"), ""},

		{"empty", ``, "unexpected end"},
		{"cut", `{"a":1`, "unexpected end"},
		{"cut escape", `"\u12`, "unexpected end"},
		{"cut literal", `tru`, "unexpected end"},
		{"cut number", `-`, "unexpected end"},
		{"two values", `1 2`, "text after the value"},
		{"not UTF-8", "\"\xff\"", "not UTF-8"},
		{"not UTF-8 in a key", "{\"long enough \xc3\":1}", "not UTF-8"},
		{"too deep", deep(rawjson.MaxDepth + 1), "nested too deep"},
		{"key twice", `{"a":1,"b":2,"a":3}`, "a key stands twice"},
		{"key twice, escaped", `{"a":1,"\u0061":3}`, "a key stands twice"},
		{"key twice of many", many(5000, "key-17"), "a key stands twice"},
		{"leading zero", `01`, "malformed number"},
		{"plus", `+1`, "expected a value"},
		{"no fraction", `1.x`, "malformed number"},
		{"no exponent", `1e]`, "malformed number"},
		{"control character", "\"a\nb\"", "control character"},
		{"control character far in", "\"0123456789\x01\"", "control character"},
		{"bad escape", `"\x"`, "unknown escape"},
		{"bad hex", `"\u12g4"`, "four hex digits"},
		{"no colon", `{"a" 1}`, "expected ':'"},
		{"no comma", `[1 2]`, "expected ','"},
		{"wrong bracket", `{"a":1]`, "expected ',' or '}'"},
		{"comma at the end", `[1,]`, "expected a value"},
		{"comma at the end of an object", `{"a":1,}`, "expected a key"},
		{"number as key", `{1:1}`, "expected a key"},
		{"word", `nil`, "expected a value"},
		{"HTML", `<html>`, "expected a value"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			err := rawjson.Check(test.src)
			if test.reason == "" && err != nil || test.reason != "" && (err == nil || !strings.Contains(err.Error(), test.reason)) {
				t.Errorf("Check: %v, want %q", err, test.reason)
			}
		})
	}
}

// TestScanIncomplete shows that every prefix of a text is incomplete.
func TestScanIncomplete(t *testing.T) {
	const src = `{"a":[1,-2.5e+7,true,false,null,"x\u0041\n"],"b" : {"c":{}}}`
	for n := range len(src) {
		if _, err := rawjson.Scan(src[:n], 0); !errors.Is(err, rawjson.ErrIncomplete) {
			t.Errorf("the first %d bytes: %v", n, err)
		}
	}
	if end, err := rawjson.Scan(src+"rest", 0); err != nil || end != len(src) {
		t.Errorf("Scan = %d, %v; want %d", end, err, len(src))
	}
}

func FuzzCheck(f *testing.F) {
	for _, seed := range []string{
		`{"a":[1,2.5,true,null,"x\n"],"b":{}}`, `{"a":1,"a":2}`, "\"\xff\"", `[[[]]]`, `1e5`, `"\ud800"`, " {} ", `{"a":tru}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		compareCheck(t, data)
		// The end of a text is read differently.
		compareCheck(t, slices.Concat([]byte(`["`), bytes.Repeat([]byte("x"), 300), []byte(`",`), data, []byte(`,"`), bytes.Repeat([]byte("y"), 600), []byte(`"]`)))
	})
}

// compareCheck compares Check with encoding/json.
func compareCheck(t *testing.T, data []byte) {
	t.Helper()
	err := rawjson.Check(string(data))
	valid := json.Valid(data)
	if err == nil && !valid {
		t.Fatalf("%q: accepted, but encoding/json refuses it", data)
	}
	if err == nil || !valid {
		return
	}
	if utf8.Valid(data) && !twice(data) && depth(data) <= rawjson.MaxDepth {
		t.Fatalf("%q: refused, but encoding/json accepts it: %v", data, err)
	}
}

// twice reports whether an object of the valid JSON text has a duplicate key.
func twice(data []byte) bool {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	type level struct {
		keys  map[string]bool // nil: an array
		isKey bool
	}
	var open []level
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return false
		}
		top := len(open) - 1
		if s, ok := token.(string); ok && top >= 0 && open[top].keys != nil && open[top].isKey {
			if open[top].keys[s] {
				return true
			}
			open[top].keys[s], open[top].isKey = true, false
			continue
		}
		switch token {
		case json.Delim('{'):
			open = append(open, level{keys: map[string]bool{}, isKey: true})
			continue
		case json.Delim('['):
			open = append(open, level{})
			continue
		case json.Delim('}'), json.Delim(']'):
			open = open[:top]
			top--
		}
		if top >= 0 {
			open[top].isKey = true
		}
	}
}

func depth(data []byte) (deepest int) {
	n, inString := 0, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			n++
			deepest = max(deepest, n)
		case c == '}' || c == ']':
			n--
		}
	}
	return deepest
}

func TestMain(m *testing.M) { leaks.Main(m) }
