package docs

import (
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

// noProse is a line whose width is not that of prose: of a table, of code, or of HTML.
var noProse = regexp.MustCompile(`^\||^    |^ *<|^\[`)

// TestWidths: prose can be read in an editor of 140 columns, and the README on two screens.
func TestWidths(t *testing.T) {
	for name, text := range readDocuments(t) {
		for line := range strings.SplitSeq(fence.ReplaceAllString(text, ""), "\n") {
			if n := utf8.RuneCountInString(line); n > 140 && !noProse.MatchString(line) {
				t.Errorf("%s: a line of prose has %d columns, more than 140: %s", name, n, line)
			}
		}
		if n := strings.Count(text, "\n"); name == "README.md" && n > 120 {
			t.Errorf("README.md has %d lines, more than 120", n)
		}
	}
}
