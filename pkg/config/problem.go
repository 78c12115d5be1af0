package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Problem is one mistake in a configuration.
type Problem struct {
	File         string
	Line, Column int    // from 1, in characters; 0: unknown
	Path         string // routes[2].filter
	Message      string // the reason and the remedy
}

// Error formats the problem as config.yaml:31:13: routes[2].filter: message.
func (p Problem) Error() string {
	var b strings.Builder
	b.WriteString(p.File)
	if p.Line > 0 {
		fmt.Fprintf(&b, ":%d", p.Line)
	}
	if p.Line > 0 && p.Column > 0 {
		fmt.Fprintf(&b, ":%d", p.Column)
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

// Err returns ps as an error, nil if there is no problem.
func (ps Problems) Err() error {
	if len(ps) == 0 {
		return nil
	}
	return ps
}
