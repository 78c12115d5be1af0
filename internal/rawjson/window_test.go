package rawjson_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/rawjson"
	"github.com/deltarouter/deltarouter/test/must"
)

// TestLongText has each kind of special byte at each place of the windows in which the scanner
// looks for them.
func TestLongText(t *testing.T) {
	for pad := range 1200 {
		for _, test := range []struct {
			at     string // a part of a string behind pad bytes
			reason string // empty: it is valid
			offset int    // of the fault, from the begin of at
		}{
			{at: `","b":"`},
			{at: `\"`},
			{at: `\\","b":"\\`},
			{at: `\u00fc \n`},
			{at: "ü \x7f"},
			{"a\x1f", "control character in a string", 1},
			{"\x00", "control character in a string", 0},
			{`"a":`, "expected ',' or '}'", 1},
			{`\x`, "unknown escape", 0},
		} {
			text := `{"a":"` + strings.Repeat("x", pad) + test.at + strings.Repeat("y", 600) + `"}`
			var bad *rawjson.SyntaxError
			err := rawjson.Check(text)
			want := rawjson.SyntaxError{Offset: len(`{"a":"`) + pad + test.offset, Reason: test.reason}
			if test.reason == "" {
				must.Succeed(t, err)
			} else if !errors.As(err, &bad) || *bad != want {
				t.Fatalf("%q behind %d bytes: %v, want %v", test.at, pad, err, &want)
			}
		}
		if err := rawjson.Check(fmt.Sprintf(`["%s%s"]`, strings.Repeat("x", pad), "\xff"+strings.Repeat("y", 600))); err == nil {
			t.Fatalf("a byte behind %d bytes that is not UTF-8 is accepted", pad)
		}
		if _, err := rawjson.Scan(`["`+strings.Repeat("x", pad), 0); !errors.Is(err, rawjson.ErrIncomplete) {
			t.Fatalf("a string that ends after %d bytes: %v", pad, err)
		}
	}
}
