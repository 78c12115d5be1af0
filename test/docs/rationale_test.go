package docs

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	decision     = regexp.MustCompile(`(?m)^## (.+)\n\n(?:\*(\d{4}-\d\d-\d\d)[^*]*\*\n)?`)
	indexedTitle = regexp.MustCompile(`(?m)^\| (\d{4}-\d\d-\d\d) \| \[(.+)\]\(rationale/(\w+\.md)#[^)]*\) \|`)
)

// TestRationale: each decision has a date, and the index lists all of them with their dates, in the
// order of their files. TestLinks checks the anchors.
func TestRationale(t *testing.T) {
	documents := readDocuments(t)
	indexed := map[string][]string{} // by file
	for _, m := range indexedTitle.FindAllStringSubmatch(documents["docs/RATIONALE.md"], -1) {
		indexed[m[3]] = append(indexed[m[3]], m[1]+" "+m[2])
	}
	n := 0
	for name, text := range documents {
		if path.Dir(name) != "docs/rationale" {
			continue
		}
		var decided []string
		for _, m := range decision.FindAllStringSubmatch(text, -1) {
			if m[2] == "" {
				t.Errorf("%s: %s has no date", name, m[1])
			}
			decided = append(decided, m[2]+" "+m[1])
		}
		if listed := indexed[path.Base(name)]; !slices.Equal(decided, listed) {
			t.Errorf("%s has\n%s\nand RATIONALE.md lists\n%s", name, strings.Join(decided, "\n"), strings.Join(listed, "\n"))
		}
		n += len(decided)
	}
	if n < 100 {
		t.Errorf("only %d decisions were found", n)
	}
}
