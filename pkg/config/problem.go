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
	Message      string // the cause and the remedy
	Warning      bool   // a probable mistake in a valid configuration
	Text         string // the line of the file, if the position is inside an expression or a line that is not YAML
}

// Error formats the problem as config.yaml:31:13: routes[2].filter: message. A warning has the word
// warning after the position.
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

// Problems are all mistakes of a configuration. A valid configuration has none.
type Problems []Problem

// Error lists the problems, one per line, in the order of the file.
func (ps Problems) Error() string {
	sorted := ps.Sorted()
	lines := make([]string, len(sorted))
	for i, p := range sorted {
		lines[i] = p.Error()
	}
	return strings.Join(lines, "\n")
}

// Sorted returns the problems in the order of the file, without duplicates.
func (ps Problems) Sorted() Problems {
	sorted := slices.Clone(ps)
	slices.SortStableFunc(sorted, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return slices.Compact(sorted)
}

// Quoted is like [Problems.Error]. For each problem with a Text it adds this line of the file, with
// a mark below the word at the column, or below the first word if the column is unknown.
func (ps Problems) Quoted() string {
	var b strings.Builder
	for i, p := range ps.Sorted() {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(p.Error())
		if text := strings.TrimRight(p.Text, " \t"); text != "" {
			first := 1 + len(text) - len(strings.TrimLeft(text, " \t"))
			b.WriteString("\n  " + text + "\n  " + mark(text, cmp.Or(p.Column, first)))
		}
	}
	return b.String()
}

// mark returns a line with a mark below the word at a column. It keeps tabs, so that the mark has
// the right position.
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

// Err returns ps as an error, or nil if there is no problem.
func (ps Problems) Err() error {
	if len(ps) == 0 {
		return nil
	}
	return ps
}
