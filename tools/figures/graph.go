package main

import (
	"fmt"
	"go/ast"
)

// packages counts the folders with Go files.
func packages(t tree) (string, []string) {
	return fmt.Sprint(len(t.graph())), nil
}

// imports counts the pairs of a package of the router and another one that it imports, and the
// packages of the longest chain.
func imports(t tree) (string, []string) {
	graph := t.graph()
	edges := 0
	longest := make(map[string][]string)
	var chain func(dir string) []string
	chain = func(dir string) []string {
		if known, ok := longest[dir]; ok {
			return known
		}
		edges += len(graph[dir])
		var below []string
		for _, to := range graph[dir] {
			if c := chain(to); len(c) > len(below) {
				below = c
			}
		}
		longest[dir] = append([]string{dir}, below...)
		return longest[dir]
	}
	var most []string
	for dir := range graph {
		// Equally long chains: the first one by name, so that each run prints the same.
		if c := chain(dir); len(c) > len(most) || len(c) == len(most) && c[0] < most[0] {
			most = c
		}
	}
	var places []string
	for i, dir := range most {
		places = append(places, fmt.Sprintf("%2d %s", i+1, dir))
	}
	return fmt.Sprintf("%d, %d", edges, len(most)), places
}

// exported counts exported functions, exported methods (of unexported types, too: they may
// implement an interface) and exported types.
func exported(t tree) (string, []string) {
	functions, types := 0, 0
	for _, f := range t.files {
		for _, decl := range f.ast.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				if d.Name.IsExported() {
					functions++
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if s, ok := spec.(*ast.TypeSpec); ok && s.Name.IsExported() {
						types++
					}
				}
			}
		}
	}
	return fmt.Sprintf("%d, %d", functions, types), nil
}
