package arch

import (
	"fmt"
	"go/ast"
	"go/build/constraint"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/test/must"
)

// The bounds of a package, and of the public API in pkg/.
const (
	maxFiles    = 14  // non-test files of a package
	maxMethods  = 30  // of a type
	maxFields   = 20  // of a struct
	maxExported = 200 // names under pkg/
)

// structure has the bounded figures.
type structure map[string]int

// bound returns the bound of an entry.
func bound(entry string) int {
	switch {
	case entry == exportedNames:
		return maxExported
	case strings.HasPrefix(entry, "files "):
		return maxFiles
	case strings.HasPrefix(entry, "methods "):
		return maxMethods
	}
	return maxFields
}

const exportedNames = "exported names under pkg/"

// add counts a file. Files of several systems count once: x_linux.go and x_other.go are one file x.
func (s structure) add(f *file, seen map[string]bool) {
	if f.test() || f.program() || ast.IsGenerated(f.ast) {
		return
	}
	noun := f.dir + "/" + f.noun()
	if seen[noun] {
		return
	}
	seen[noun] = true
	s["files "+f.dir]++
	public := strings.HasPrefix(f.dir, "pkg/") && !strings.Contains(f.dir, "/internal")
	for _, decl := range f.ast.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Recv != nil {
				s["methods "+f.dir+"."+receiver(d.Recv.List[0].Type)]++
			} else if public && d.Name.IsExported() {
				s[exportedNames]++
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				s.addSpec(f, spec, public)
			}
		}
	}
}

func (s structure) addSpec(f *file, spec ast.Spec, public bool) {
	var names []*ast.Ident
	switch d := spec.(type) {
	case *ast.TypeSpec:
		names = append(names, d.Name)
		if t, ok := d.Type.(*ast.StructType); ok {
			s["fields "+f.dir+"."+d.Name.Name] = t.Fields.NumFields()
		}
	case *ast.ValueSpec:
		names = d.Names
	}
	for _, name := range names {
		if public && name.IsExported() {
			s[exportedNames]++
		}
	}
}

// noun returns the name of a file without its operating system.
func (f *file) noun() string {
	name := strings.TrimSuffix(f.name, ".go")
	constrained := slices.ContainsFunc(f.ast.Comments, func(c *ast.CommentGroup) bool {
		return c.Pos() < f.ast.Package && constraint.IsGoBuild(c.List[0].Text)
	})
	if at := strings.LastIndexByte(name, '_'); at > 0 && (constrained || slices.Contains(systems, name[at+1:])) {
		return name[:at]
	}
	return name
}

var systems = []string{"linux", "darwin", "windows", "unix", "amd64", "arm64"}

func receiver(e ast.Expr) string {
	switch t := e.(type) {
	case *ast.StarExpr:
		return receiver(t.X)
	case *ast.IndexExpr:
		return receiver(t.X)
	case *ast.IndexListExpr:
		return receiver(t.X)
	case *ast.Ident:
		return t.Name
	}
	return "?"
}

// problems compares the figures with the bounds and the exceptions, and returns a line for each
// difference.
func (s structure) problems(exceptions map[string]exception) (lines []string) {
	for _, entry := range slices.Sorted(maps.Keys(s)) {
		most := bound(entry)
		if allowed, ok := exceptions[entry]; ok {
			most = allowed.most
		}
		if s[entry] > most {
			lines = append(lines, fmt.Sprintf("%s: %d, more than %d: split it by who owns the data", entry, s[entry], most))
		}
	}
	for _, entry := range slices.Sorted(maps.Keys(exceptions)) {
		if s[entry] <= bound(entry) {
			lines = append(lines, fmt.Sprintf("%s: %d is within the bound: remove the exception", entry, s[entry]))
		}
	}
	return lines
}

// TestStructure bounds the size of packages, types and the public API.
func TestStructure(t *testing.T) {
	s, seen := structure{}, map[string]bool{}
	for _, top := range []string{"cmd", "internal", "pkg"} {
		err := fs.WalkDir(os.DirFS(filepath.Join(root, top)), ".", func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() && path.Base(name) == "testdata" {
				return cmpErr(err, fs.SkipDir)
			}
			if d.IsDir() || path.Ext(name) != ".go" {
				return nil
			}
			src, err := os.ReadFile(filepath.Join(root, top, name))
			if err != nil {
				return err
			}
			f, err := parse(top+"/"+name, src)
			if err == nil {
				s.add(f, seen)
			}
			return err
		})
		must.Succeed(t, err)
	}
	for _, problem := range s.problems(exceptions) {
		t.Error(problem)
	}
}

func cmpErr(err, otherwise error) error {
	if err != nil {
		return err
	}
	return otherwise
}

// TestStructureCounts shows how figures are counted, and that each bound is effective.
func TestStructureCounts(t *testing.T) {
	s, seen := structure{}, map[string]bool{}
	for name, src := range map[string]string{
		"pkg/a/a.go": "package a\n// T is one.\ntype T[K any] struct{ x, y int; z string }\nfunc (*T[K]) M() {}\nfunc (T[K]) n() {}\n" +
			"const (\n A = 1\n b = 2\n)\nfunc F() {}\n",
		"pkg/a/sys_linux.go":    "package a\nfunc G() {}\n",
		"pkg/a/sys_other.go":    "//go:build !linux\n\npackage a\nfunc G() {}\n",
		"pkg/a/a_test.go":       "package a\nfunc H() {}\n",
		"pkg/a/internal/b/b.go": "package b\nfunc F() {}\n",
	} {
		f, err := parse(name, []byte(src))
		must.Succeed(t, err)
		s.add(f, seen)
	}
	want := structure{
		"files pkg/a": 2, "files pkg/a/internal/b": 1, "methods pkg/a.T": 2, "fields pkg/a.T": 3,
		exportedNames: 4, // T, A, F, G
	}
	if !maps.Equal(s, want) {
		t.Errorf("got %v, want %v", s, want)
	}
	large := structure{"files x": maxFiles + 2, "methods x.T": maxMethods + 1, "fields x.T": maxFields + 1, exportedNames: maxExported + 1, "files y": 1}
	if got := large.problems(map[string]exception{"files x": {maxFiles + 1, "a reason"}, "files y": {20, "a reason"}}); len(got) != 5 {
		t.Errorf("got %q, want 5 problems", got)
	}
}
