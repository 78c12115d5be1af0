package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
)

// module is the import path of the router.
const module = "github.com/deltarouter/deltarouter"

// tree has the parsed files of the router.
type tree struct {
	fset  *token.FileSet
	files []file // sorted by path
}

// file is one Go file that is no test.
type file struct {
	dir, path string // relative to the root
	lines     int
	ast       *ast.File
}

// read parses the router. Generated files count too: a reader meets their names.
func read(repository fs.FS) (tree, error) {
	t := tree{fset: token.NewFileSet()}
	for _, top := range []string{"cmd", "internal", "pkg"} {
		err := fs.WalkDir(repository, top, func(name string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && d.Name() == "testdata":
				return fs.SkipDir
			case d.IsDir() || path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go"):
				return nil
			}
			src, err := fs.ReadFile(repository, name)
			if err != nil {
				return err
			}
			parsed, err := parser.ParseFile(t.fset, name, src, parser.ParseComments|parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			t.files = append(t.files, file{path.Dir(name), name, strings.Count(string(src), "\n"), parsed})
			return nil
		})
		if err != nil {
			return tree{}, err
		}
	}
	return t, nil
}

// at returns the place of a node as file:line.
func (t tree) at(n ast.Node) string {
	p := t.fset.Position(n.Pos())
	return fmt.Sprintf("%s:%d", p.Filename, p.Line)
}

func (t tree) line(p token.Pos) int { return t.fset.Position(p).Line }

// lines is the number of lines of all files.
func (t tree) lines() (n int) {
	for _, f := range t.files {
		n += f.lines
	}
	return n
}

// functions yields each function with a body, of the files under the given folders; none: of all.
func (t tree) functions(do func(f file, d *ast.FuncDecl), tops ...string) {
	for _, f := range t.files {
		if len(tops) > 0 && !under(f.dir, tops...) {
			continue
		}
		for _, decl := range f.ast.Decls {
			if d, ok := decl.(*ast.FuncDecl); ok && d.Body != nil {
				do(f, d)
			}
		}
	}
}

// structs yields each struct type that has a name.
func (t tree) structs(do func(f file, name string, s *ast.StructType)) {
	for _, f := range t.files {
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok {
				if s, ok := spec.Type.(*ast.StructType); ok {
					do(f, spec.Name.Name, s)
				}
			}
			return true
		})
	}
}

// graph returns the imports within the router, by package.
func (t tree) graph() map[string][]string {
	edges := make(map[string]map[string]bool)
	for _, f := range t.files {
		if edges[f.dir] == nil {
			edges[f.dir] = make(map[string]bool)
		}
		for _, spec := range f.ast.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			own, found := strings.CutPrefix(imported, module+"/")
			if err == nil && found && under(own, "cmd", "internal", "pkg") {
				edges[f.dir][own] = true
			}
		}
	}
	sorted := make(map[string][]string)
	for dir, to := range edges {
		sorted[dir] = slices.Sorted(maps.Keys(to))
	}
	return sorted
}

// imported returns the names under which a file knows other packages.
func (f file) imported() map[string]bool {
	names := make(map[string]bool)
	for _, spec := range f.ast.Imports {
		if spec.Name != nil {
			names[spec.Name.Name] = true
		} else if full, err := strconv.Unquote(spec.Path.Value); err == nil {
			names[path.Base(full)] = true
		}
	}
	return names
}
