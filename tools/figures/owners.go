package main

import (
	"fmt"
	"go/ast"
	"slices"
	"strings"
)

// wholes counts the structs that embed a pointer to a struct with a lock of the same package: a
// part that sees the whole, whose methods can take a lock that the reader does not see. A lock is a
// field of the type sync.Mutex or sync.RWMutex; one of another type or behind a name is not seen.
func wholes(t tree) (string, []string) {
	type named struct{ dir, name string }
	locked := make(map[named]bool)
	t.structs(func(f file, name string, s *ast.StructType) {
		for _, field := range s.Fields.List {
			if isMutex(field.Type) {
				locked[named{f.dir, name}] = true
			}
		}
	})
	var places []string
	t.structs(func(f file, name string, s *ast.StructType) {
		for _, field := range s.Fields.List {
			pointer, ok := field.Type.(*ast.StarExpr)
			if !ok || len(field.Names) > 0 {
				continue
			}
			if to, ok := pointer.X.(*ast.Ident); ok && locked[named{f.dir, to.Name}] {
				places = append(places, fmt.Sprintf("%s %s embeds *%s", t.at(field), name, to.Name))
			}
		}
	})
	return counted(places)
}

func isMutex(e ast.Expr) bool {
	s, ok := e.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	of, ok := s.X.(*ast.Ident)
	return ok && of.Name == "sync" && (s.Sel.Name == "Mutex" || s.Sel.Name == "RWMutex")
}

// reaches counts the chains of three exported selectors in internal/pipeline, such as r.A.B.C: code
// that reaches through a value into the parts of its parts. A longer chain counts once. A call ends
// a chain, and the name of a package in front is no part of it.
func reaches(t tree) (string, []string) {
	var places []string
	for _, f := range t.files {
		if !under(f.dir, "internal/pipeline") {
			continue
		}
		packages := f.imported()
		longer := make(map[ast.Expr]bool) // the beginnings of chains that were seen
		ast.Inspect(f.ast, func(n ast.Node) bool {
			s, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			longer[s.X] = true
			if longer[s] {
				return true
			}
			names, base := chainOf(s)
			if id, ok := base.(*ast.Ident); ok && packages[id.Name] {
				names = names[1:]
			}
			if threeExported(names) {
				places = append(places, t.at(s)+" "+strings.Join(names, "."))
			}
			return true
		})
	}
	return counted(places)
}

// chainOf returns the names of nested selectors, and what stands before the first one.
func chainOf(s *ast.SelectorExpr) (names []string, base ast.Expr) {
	for {
		names = append(names, s.Sel.Name)
		inner, ok := s.X.(*ast.SelectorExpr)
		if !ok {
			slices.Reverse(names)
			return names, s.X
		}
		s = inner
	}
}

// threeExported reports whether three names in a row are exported.
func threeExported(names []string) bool {
	row := 0
	for _, name := range names {
		row++
		if !ast.IsExported(name) {
			row = 0
		}
		if row == 3 {
			return true
		}
	}
	return false
}

// functionFields counts the fields of structs, with or without a name, whose type is a function:
// callbacks, whose owner is not seen at the call. A type with a name that is a function does not
// count. Fields that are declared together count each.
func functionFields(t tree) (string, []string) {
	var places []string
	for _, f := range t.files {
		ast.Inspect(f.ast, func(n ast.Node) bool {
			s, ok := n.(*ast.StructType)
			if !ok {
				return true
			}
			for _, field := range s.Fields.List {
				if _, ok := field.Type.(*ast.FuncType); ok {
					for _, name := range field.Names {
						places = append(places, t.at(name)+" "+name.Name)
					}
				}
			}
			return true
		})
	}
	return counted(places)
}
