package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// Problem is one mistake in a configuration.
type Problem struct {
	File         string
	Line, Column int    // from 1, in characters; 0: unknown
	Path         string // routes[2].filter
	Message      string // the reason and the remedy
	Warning      bool   // nothing is wrong, but it may not be what was meant
	Text         string // the line of the file, if the place is inside an expression
}

// Error formats the problem as config.yaml:31:13: routes[2].filter: message. A warning says so
// behind the place.
func (p Problem) Error() string {
	var b strings.Builder
	b.WriteString(p.File)
	if p.Line > 0 {
		fmt.Fprintf(&b, ":%d", p.Line)
	}
	if p.Line > 0 && p.Column > 0 {
		fmt.Fprintf(&b, ":%d", p.Column)
	}
	if p.Warning {
		b.WriteString(": warning")
	}
	if p.Path != "" {
		b.WriteString(": " + p.Path)
	}
	return strings.TrimPrefix(b.String()+": "+p.Message, ": ")
}

// Problems is all mistakes of a configuration; none is a valid one.
type Problems []Problem

// Error lists the problems, one a line, in the order of the file.
func (ps Problems) Error() string {
	sorted := ps.Sorted()
	lines := make([]string, len(sorted))
	for i, p := range sorted {
		lines[i] = p.Error()
	}
	return strings.Join(lines, "\n")
}

// Sorted returns the problems in the order of the file, none twice.
func (ps Problems) Sorted() Problems {
	sorted := slices.Clone(ps)
	slices.SortStableFunc(sorted, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return slices.Compact(sorted)
}

// Quoted is like [Problems.Error], with the line of the file and a mark under the word below each
// problem inside an expression.
func (ps Problems) Quoted() string {
	var b strings.Builder
	for i, p := range ps.Sorted() {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(p.Error())
		if p.Text != "" && p.Column > 0 {
			b.WriteString("\n  " + strings.TrimRight(p.Text, " \t") + "\n  " + mark(p.Text, p.Column))
		}
	}
	return b.String()
}

// mark points at the word that begins at a column of a line. Tabs stay, so that the mark is where
// the word is.
func mark(line string, column int) string {
	var b strings.Builder
	runes := []rune(line)
	for _, r := range runes[:min(column-1, len(runes))] {
		if r != '\t' {
			r = ' '
		}
		b.WriteRune(r)
	}
	b.WriteByte('^')
	for i := column; i < len(runes) && isWord(runes[i-1]) && isWord(runes[i]); i++ {
		b.WriteByte('^')
	}
	return b.String()
}

func isWord(r rune) bool { return r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) }

// Err returns ps as an error, nil if there is no problem.
func (ps Problems) Err() error {
	if len(ps) == 0 {
		return nil
	}
	return ps
}
