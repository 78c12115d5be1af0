package cases

import (
	"fmt"
	"strings"
)

// around is the number of equal lines around a difference.
const around = 3

// edit is a line of a comparison: ' ' in both texts, '-' expected only, '+' actual only.
type edit struct {
	mark byte
	line string
}

// route returns a heading with the route whose entry begins in this line, or else the heading
// before.
func (e edit) route(before string) string {
	if route, ok := strings.CutPrefix(e.line, "- route: "); ok {
		return " route " + route
	}
	return before
}

// unified compares two texts in the format of diff -u. It returns "" if they are equal.
func unified(want, got []string) string {
	edits := compare(want, got)
	var b strings.Builder
	a, z := 1, 1 // the next line of either text
	about := ""  // the route of the current entry
	for i := 0; i < len(edits); {
		about = edits[i].route(about)
		if edits[i].mark == ' ' && !near(edits, i) {
			i, a, z = i+1, a+1, z+1
			continue
		}
		end := i
		for end < len(edits) && (edits[end].mark != ' ' || near(edits, end)) {
			end++
		}
		n, m := 0, 0
		for _, e := range edits[i:end] {
			if e.mark != '+' {
				n++
			}
			if e.mark != '-' {
				m++
			}
		}
		if b.Len() == 0 {
			b.WriteString("--- expected\n+++ actual\n")
		}
		fmt.Fprintf(&b, "@@ -%d,%d +%d,%d @@%s\n", a, n, z, m, about)
		for _, e := range edits[i:end] {
			about = e.route(about)
			b.WriteByte(e.mark)
			b.WriteString(e.line + "\n")
		}
		i, a, z = end, a+n, z+m
	}
	return b.String()
}

// near reports whether a differing line is close to i.
func near(edits []edit, i int) bool {
	for j := max(0, i-around); j <= min(len(edits)-1, i+around); j++ {
		if edits[j].mark != ' ' {
			return true
		}
	}
	return false
}

// compare computes the edits from want to got.
func compare(want, got []string) (edits []edit) {
	same := func(lines []string) {
		for _, line := range lines {
			edits = append(edits, edit{' ', line})
		}
	}
	start := 0
	for start < min(len(want), len(got)) && want[start] == got[start] {
		start++
	}
	end := 0
	for end < min(len(want), len(got))-start && want[len(want)-1-end] == got[len(got)-1-end] {
		end++
	}
	same(want[:start])
	tail := want[len(want)-end:]
	want, got = want[start:len(want)-end], got[start:len(got)-end]
	best := table(len(want), len(got), func(i, j int) bool { return want[i] == got[j] })
	i, j := 0, 0
	for i < len(want) || j < len(got) {
		switch {
		case i < len(want) && j < len(got) && want[i] == got[j]:
			edits = append(edits, edit{' ', want[i]})
			i, j = i+1, j+1
		case j == len(got) || i < len(want) && best[i+1][j] >= best[i][j+1]:
			edits = append(edits, edit{'-', want[i]})
			i++
		default:
			edits = append(edits, edit{'+', got[j]})
			j++
		}
	}
	same(tail)
	return edits
}
