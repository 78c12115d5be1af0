package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"path"
	"strings"
)

// mostRows bounds the table.
const mostRows = 45

// The lines of CONTRIBUTING.md around the table.
const (
	tableBegins = "<!-- way: generated -->\n"
	tableEnds   = "<!-- end -->\n"
)

// row is a step of the table: a call into another package.
type row struct {
	goroutine int
	dir       string
	functions []string
}

// rowsOf makes the rows of the way: one for each call into another package of a room, in order.
// Calls with few functions below them are left out: as few as possible, so that the rows are at
// most mostRows. So are functions that a former row has. Calls into one package in a row share a
// row.
func rowsOf(way []goroutine) []row {
	for least := 1; ; least++ {
		if rows := rowsAbove(way, least); len(rows) <= mostRows {
			return rows
		}
	}
}

// rowsAbove makes the rows for calls with at least so many functions, and for the outermost
// function of each goroutine. A literal is left out: it comes back into a function that has its
// row.
func rowsAbove(way []goroutine, least int) (rows []row) {
	known := make(map[string]bool)
	for i, g := range way {
		walk(g.roots, nil, func(n, parent *node) {
			enters := parent == nil || parent.dir != n.dir
			if n.kind == locks || !enters || roomOf(n.dir) == "" || n.kind == called && n.weight() < least {
				return
			}
			name := declared(n.name)
			if parent != nil && isLiteral(n.name) {
				return
			}
			if known[n.dir+" "+name] || name == "" {
				return
			}
			known[n.dir+" "+name] = true
			if last := len(rows) - 1; last >= 0 && rows[last].goroutine == i+1 && rows[last].dir == n.dir {
				rows[last].functions = append(rows[last].functions, name)
				return
			}
			rows = append(rows, row{i + 1, n.dir, []string{name}})
		})
	}
	return rows
}

// weight returns the number of distinct functions of a call.
func (n *node) weight() int {
	all := make(map[call]bool)
	walk([]*node{n}, nil, func(n, _ *node) { all[n.call()] = true })
	return len(all)
}

// declared returns the function in which a literal is; empty: it is in a variable.
func declared(name string) string {
	for isLiteral(name) {
		name, _ = cutLast(name)
	}
	return name
}

// table prints the rows in Markdown. docs has the first sentences of the functions' comments, by
// package and name.
func table(rows []row, docs map[string]string) (string, error) {
	var b strings.Builder
	b.WriteString("| goroutine | package | functions | effect of the first one |\n|---|---|---|---|\n")
	for _, r := range rows {
		for _, name := range r.functions {
			if _, exists := docs[r.dir+" "+name]; !exists {
				return "", fmt.Errorf("%s of the recording is not in %s: record the way again with -w", name, r.dir)
			}
		}
		fmt.Fprintf(&b, "| %d | `%s` | `%s` | %s |\n", r.goroutine, r.dir, strings.Join(r.functions, "`, `"), cmp.Or(docs[r.dir+" "+r.functions[0]], "–"))
	}
	return b.String(), nil
}

// sentences returns the first sentence of each function's comment, without the name of the
// function; empty: it has none.
func sentences(root string) (map[string]string, error) {
	all := make(map[string]string)
	err := eachSource(root, func(name string, src []byte) error {
		tree, err := parser.ParseFile(token.NewFileSet(), name, src, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, decl := range tree.Decls {
			if d, ok := decl.(*ast.FuncDecl); ok {
				all[path.Dir(name)+" "+nameOf(d)] = sentence(d)
			}
		}
		return nil
	})
	return all, err
}

func sentence(d *ast.FuncDecl) string {
	synopsis := new(doc.Package).Synopsis(d.Doc.Text())
	synopsis = strings.TrimSuffix(strings.TrimPrefix(synopsis, d.Name.Name+" "), ".")
	synopsis = strings.TrimSuffix(synopsis, ":")
	return strings.NewReplacer("|", `\|`, "[", "", "]", "").Replace(synopsis)
}

// withTable returns the text of CONTRIBUTING.md with another table.
func withTable(text, table string) (string, error) {
	before, rest, found := strings.Cut(text, tableBegins)
	_, after, ended := strings.Cut(rest, tableEnds)
	if !found || !ended {
		return "", fmt.Errorf("CONTRIBUTING.md has no lines %q and %q", tableBegins, tableEnds)
	}
	return before + tableBegins + "\n" + table + "\n" + tableEnds + after, nil
}
