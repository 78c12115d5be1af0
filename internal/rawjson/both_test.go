package rawjson_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/rawjson"
)

// bothSeeds are pairs of texts. The second ones share parts with the first.
var bothSeeds = [][2]string{
	{`{"a":{"b":[1,2]},"c":{"d":"x"}}`, `{"a":{"b":[1,2]},"c":{"d":"y"}}`},
	{`{"a":{"b":1},"c":{"d":2}}`, `{"c":{"d":2},"a":{"b":1}}`},
	{`{"a":{"b":1}}`, `{"a":{"b":1}`},
	{`{"a":{"b":1}}`, `{"a":{"b":1}2}`},
	{`{"a":{"b":1}}`, `{"a":{"b":1},"a":{"b":1}}`},
	{`{"a":{"b":1}}`, `{"x":{},"y":{},"a":{"b":1},"z":[]}`},
	{`{"a":["é"]}`, `{"a":["é"]}`},
	{`{"a":["é"]}`, "{\"a\":[\"é\"],\"b\":\"\xff\"}"},
	{`{"a":["e"]}`, "{\"a\":[\"\xff\"]}"},
	{`[[[[[1]]]]]`, `[[[[[1]]]]`},
	{`[[[[[1]]]],2]`, `[[[[[1]]]],3]`},
	{`[1,2]`, `{"a":1}`},
	{`{`, `{}`},
	{`{"a":[{"x":1},{"x":2}]}`, `{"a":[{"x":0},{"x":1},{"x":2}]}`},
}

// FuzzCheckBoth: CheckBoth accepts two texts if and only if Check accepts each.
func FuzzCheckBoth(f *testing.F) {
	for _, pair := range bothSeeds {
		f.Add(pair[0], pair[1])
	}
	f.Fuzz(func(t *testing.T, first, second string) {
		a, b := rawjson.Check(first), rawjson.Check(second)
		want := a
		if want == nil {
			want = b
		}
		got := rawjson.CheckBoth(first, second)
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("CheckBoth: %v, Check: %v and %v", got, a, b)
		}
	})
}

// TestCheckBothDeep: the bound of the nesting is the same one for parts that are not read twice.
func TestCheckBothDeep(t *testing.T) {
	nested := func(depth int) string { return strings.Repeat("[", depth) + strings.Repeat("]", depth) }
	for _, depth := range []int{rawjson.MaxDepth - 1, rawjson.MaxDepth} {
		second := "[" + nested(depth) + "]"
		if got, want := rawjson.CheckBoth(nested(depth), second), rawjson.Check(second); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%d: %v, want %v", depth, got, want)
		}
	}
}

// TestCheckBothMany: objects beyond those that are remembered are checked, too.
func TestCheckBothMany(t *testing.T) {
	elems := strings.Repeat(`{"a":[1]},`, 500)
	first := `{"list":[` + elems + `0]}`
	for _, second := range []string{first, `{"list":[` + elems + `0,{"a":[1,]}]}`, `{"list":[0,` + elems + `{"a":}]}`} {
		if got, want := rawjson.CheckBoth(first, second), rawjson.Check(second); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("got %v, want %v", got, want)
		}
	}
}
