package main

import (
	"fmt"
	"go/ast"
)

// rooms are the packages in which each long function is to explain itself, under their present
// names and those of the restructuring.
var rooms = []string{
	"internal/pipeline/route", "pkg/informer", "internal/router", "internal/engine", "internal/fleet",
}

// longFunction is the number of lines from which a function needs a comment inside.
const longFunction = 25

// comments compares the lines with comments inside functions with the lines of these functions,
// from brace to brace.
func comments(t tree) (string, []string) {
	commented, lines := 0, 0
	t.functions(func(f file, d *ast.FuncDecl) {
		lines += t.length(d)
		commented += t.inner(f, d)
	})
	return perLines(commented, 100, lines), nil
}

// length returns the number of lines from the brace of a function to its last one.
func (t tree) length(d *ast.FuncDecl) int { return t.line(d.Body.Rbrace) - t.line(d.Body.Lbrace) + 1 }

// inner returns the number of lines with comments inside a function, also those behind code.
// Directives, such as //nolint, explain nothing and do not count.
func (t tree) inner(f file, d *ast.FuncDecl) (lines int) {
	for _, group := range f.ast.Comments {
		if group.Pos() < d.Body.Lbrace || group.End() > d.Body.Rbrace {
			continue
		}
		if group.Text() != "" { // without directives
			lines += t.line(group.End()) - t.line(group.Pos()) + 1
		}
	}
	return lines
}

// tagless counts the switches without a tag, whose cases are conditions, per 1,000 lines of code.
// The default of a switch makes no difference.
func tagless(t tree) (string, []string) {
	var places []string
	t.functions(func(_ file, d *ast.FuncDecl) {
		ast.Inspect(d.Body, func(n ast.Node) bool {
			if s, ok := n.(*ast.SwitchStmt); ok && s.Tag == nil {
				places = append(places, t.at(s))
			}
			return true
		})
	})
	return perLines(len(places), 1000, t.lines()), places
}

// silent counts the long functions of the rooms that have no comment inside.
func silent(t tree) (string, []string) {
	var places []string
	t.functions(func(f file, d *ast.FuncDecl) {
		if n := t.length(d); n > longFunction && t.inner(f, d) == 0 {
			places = append(places, fmt.Sprintf("%s %s, %d lines", t.at(d), d.Name.Name, n))
		}
	}, rooms...)
	return counted(places)
}
