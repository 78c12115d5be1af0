package expr

import (
	"fmt"
	"strings"
)

// suggest returns "; did you mean "x"?" for the nearest of the names, or "" if none is near.
func suggest(name string, names []string) string {
	best, nearest := 1+max(1, len(name)/3), ""
	for _, candidate := range names {
		d := distance(name, candidate)
		if len(name) >= 3 && strings.HasPrefix(candidate, name) {
			d = min(d, 1)
		}
		if d < best {
			best, nearest = d, candidate
		}
	}
	if nearest == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %q?", nearest)
}

// distance is how many characters must be inserted, removed or replaced to make b of a.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replace := diagonal
			if a[i] != b[j] {
				replace++
			}
			diagonal = row[j+1]
			row[j+1] = min(replace, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
