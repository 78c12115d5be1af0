package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/test/must"
)

// TestGenerated shows that deploy/monitoring is up to date.
func TestGenerated(t *testing.T) {
	files, err := render(publishedDocs)
	must.Succeed(t, err)
	for name, want := range files {
		if got, err := os.ReadFile(filepath.Join("../../deploy/monitoring", name)); err != nil || string(got) != string(want) {
			t.Errorf("deploy/monitoring/%s is not up to date: run make generate (%v)", name, err)
		}
	}
}

// TestRunbooks shows that each alert has a section in docs/OPERATIONS.md, in the same order, with
// all its parts, and that no section is about an alert that does not exist.
func TestRunbooks(t *testing.T) {
	document, err := os.ReadFile("../../docs/OPERATIONS.md")
	must.Succeed(t, err)
	var want, got []string
	for _, a := range metrics.Alerts() {
		want = append(want, a.Name)
	}
	headings := regexp.MustCompile(`(?m)^#{2,4} (.*)$`).FindAllSubmatchIndex(document, -1)
	for i, h := range headings {
		name := string(document[h[2]:h[3]])
		if !regexp.MustCompile(`^Deltarouter\w+$`).MatchString(name) {
			continue
		}
		got = append(got, name)
		end := len(document)
		if i+1 < len(headings) {
			end = headings[i+1][0]
		}
		for _, part := range []string{"**Meaning.**", "**Check.**", "**Do.**"} {
			if !regexp.MustCompile(regexp.QuoteMeta(part)).Match(document[h[1]:end]) {
				t.Errorf("docs/OPERATIONS.md: the section %s has no part %s", name, part)
			}
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("docs/OPERATIONS.md has sections for the alerts\n%q, want\n%q", got, want)
	}
}

// TestLayout shows that no panel covers another or leaves the page, and that each has queries.
func TestLayout(t *testing.T) {
	taken, ids := make(map[[2]int]string), make(map[int]bool)
	for _, p := range newDashboard().Panels {
		if ids[p.ID] || p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("%s: the id %d is taken, or there is no query", p.Title, p.ID)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other, ok := taken[[2]int{x, y}]; ok || x >= columns {
					t.Fatalf("%s covers %q or leaves the page", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
	}
}
