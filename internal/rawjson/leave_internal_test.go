package rawjson

import (
	"fmt"
	"strings"
	"testing"
)

// TestLeaveAcrossWords has series of backslashes, quotes and brackets at each place of a block and
// of a word, and across their ends.
func TestLeaveAcrossWords(t *testing.T) {
	for _, form := range []string{
		`[{"a":"%s\\"}]`, `[{"a":"%s\\\\"}]`, `[{"a":"%s\""}]`, `[{"a":"%s\\\""}]`, `[{"a":"%s\"}\\"}]`, `[{"a":"%s]\\]"}]`,
		`[{"a":"%s` + strings.Repeat(`\\`, 64) + `"}]`, `[{"a":"%s` + strings.Repeat(`\\`, 64) + `\"]"}]`,
		`[{"a":"%s","b":{"c":[""]}}]`, `[[{"a":"%s"}],{"b":[{"c":"]"}]}]`,
	} {
		for pad := range 2 * 64 {
			text := fmt.Sprintf(form, strings.Repeat("x", pad))
			for name, f := range map[string]func(string, int, int) (int, bool){"leave": leave, "words": leaveWords} {
				if end, found := f(text+`,{"more":"]"}`, 0, 0); end != len(text) || !found {
					t.Fatalf("%s: %s: %d, %t, want %d", name, text, end, found, len(text))
				}
				if end, found := f(text[:len(text)-1], 0, 0); end != len(text)-1 || found {
					t.Fatalf("%s: %s without its end: %d, %t", name, text, end, found)
				}
			}
		}
	}
}

// FuzzLeaveWords compares the two versions of leave: with any text they stay within it, and with
// JSON they find the same end.
func FuzzLeaveWords(f *testing.F) {
	for _, s := range []string{
		`{}`, `[`, `{"a":{"b":[1,2,{"c":"}]"}]},"d":"\"}"}`, `["` + strings.Repeat(`\"`, 50) + `",{"c":[{}]}]`,
		`{"a":"` + strings.Repeat("x", 57) + `\\"}`, `{"a":"` + strings.Repeat("x", 56) + `\\\"}","b":[]}`, `[\"]`, strings.Repeat("[", 100), strings.Repeat("]", 100),
	} {
		f.Add(s, "]")
	}
	f.Fuzz(func(t *testing.T, s, behind string) {
		s = strings.Trim(s, " \t\r\n")
		valid := Check(s) == nil && strings.ContainsAny(s[:1], "{[")
		text := s + behind
		end, found := leave(text, 0, 0)
		wordsEnd, wordsFound := leaveWords(text, 0, 0)
		for _, n := range []int{end, wordsEnd} {
			if n < 0 || n > len(text) {
				t.Errorf("%q: the end is %d", text, n)
			}
		}
		if valid && (end != len(s) || wordsEnd != len(s) || !found || !wordsFound) {
			t.Errorf("%q: %d, %t, and %d, %t, want %d", text, end, found, wordsEnd, wordsFound, len(s))
		}
	})
}
