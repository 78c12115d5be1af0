// Package similar finds the known name that is closest to a mistyped one.
package similar

import (
	"fmt"
	"strings"
)

// Suggest completes a message about an unknown name: it proposes the most similar known name, or
// else lists all.
func Suggest(name string, known []string) string {
	if near, ok := Nearest(name, known); ok {
		return fmt.Sprintf("; did you mean %q?", near)
	}
	if len(known) == 0 {
		return "; none is known"
	}
	return "; known are " + strings.Join(known, ", ")
}

// Nearest returns the known name with the fewest typing mistakes, if they are few.
func Nearest(name string, known []string) (string, bool) {
	best, found := 0, ""
	for _, k := range known {
		d := Distance(strings.ToLower(name), strings.ToLower(k))
		if d <= max(1, min(len(name), len(k))/3) && (found == "" || d < best) {
			best, found = d, k
		}
	}
	return found, found != ""
}

// maxName bounds the compared names in bytes.
const maxName = 64

// Distance counts the insertions, deletions, replacements and swaps of neighbours
// (Damerau-Levenshtein). For a name longer than 64 bytes it returns the length of the longer name.
func Distance(one, other string) int {
	if longer := max(len(one), len(other)); longer > maxName {
		return longer
	}
	a, b := []rune(one), []rune(other)
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
