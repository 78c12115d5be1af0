package config

import (
	"fmt"
	"slices"
	"strings"
)

// Problem is one mistake in a configuration.
type Problem struct {
	File         string
	Line, Column int    // from 1; 0: unknown
	Path         string // routes[2].filter
	Message      string // the reason and the remedy
}

// Error formats the problem as config.yaml:31:13: routes[2].filter: message.
func (p Problem) Error() string {
	var b strings.Builder
	b.WriteString(p.File)
	if p.Line > 0 {
		fmt.Fprintf(&b, ":%d:%d", p.Line, p.Column)
	}
	if p.Path != "" {
		b.WriteString(": " + p.Path)
	}
	return b.String() + ": " + p.Message
}

// Problems is all mistakes of a configuration; none is a valid one.
type Problems []Problem

// Error lists the problems, one a line, in the order of the file.
func (ps Problems) Error() string {
	sorted := slices.Clone(ps)
	slices.SortStableFunc(sorted, func(a, b Problem) int {
		return 10_000*(a.Line-b.Line) + a.Column - b.Column
	})
	lines := make([]string, len(sorted))
	for i, p := range sorted {
		lines[i] = p.Error()
	}
	return strings.Join(lines, "\n")
}

// Err returns ps as an error, nil if there is no problem.
func (ps Problems) Err() error {
	if len(ps) == 0 {
		return nil
	}
	return ps
}
