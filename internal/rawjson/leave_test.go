package rawjson_test

import (
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/rawjson"
)

// leave is a bytewise version of Leave.
func leave(s string, i, depth int) int {
	for inside := false; i < len(s); i++ {
		switch c := s[i]; {
		case inside && c == '\\':
			i++
		case c == '"':
			inside = !inside
		case inside:
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return len(s)
}

// FuzzLeave shows that Leave ends at the same offset as the bytewise version, from any start.
func FuzzLeave(f *testing.F) {
	for _, s := range []string{
		`{}`, `[[[[[[[[[[]]]]]]]]]]`, `{"a":{"b":[1,2,{"c":"}]"}]},"d":"\"}"}`, `{"a":"` + strings.Repeat("x]", 100) + `\\","b":[]}`,
		`{"a":"` + strings.Repeat(`\"`, 50) + `","b":{"c":[{}]}}`, `{"a":[[]],"long":"` + strings.Repeat("y", 31) + `\\\"z","b":[{"c":1}]}   `,
		`{"a":"ü}","b":["` + strings.Repeat("}", 9) + `",{"k":"\\"}]}`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if rawjson.Check(s) != nil {
			return
		}
		depth, inside := 0, false
		for i := 0; i < len(s); i++ { // each place outside of a string
			if !inside {
				if got, want := rawjson.Leave(s, i, depth), leave(s, i, depth); got != want {
					t.Fatalf("%q from %d, %d deep: %d, want %d", s, i, depth, got, want)
				}
			}
			switch c := s[i]; {
			case inside && c == '\\':
				i++
			case c == '"':
				inside = !inside
			case inside:
			case c == '{' || c == '[':
				depth++
			case c == '}' || c == ']':
				if depth--; depth == 0 {
					return
				}
			}
		}
	})
}
