package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// module is the import path of the router.
const module = "github.com/deltarouter/deltarouter"

// function is a function, a method or a function literal of the product.
type function struct {
	dir   string // of the package, relative to the root
	name  string // Func, Type.Method, or either with .func1 for its first literal
	file  string // relative to the root
	begin int    // first and last line
	end   int
}

// lock is a place in the source at which a lock is taken.
type lock struct {
	dir, name string // name is the text before .Lock() or .RLock()
}

// sources are the functions and locks that the overlay makes visible. A number in a record is an
// index of one of them.
type sources struct {
	functions []function
	locks     []lock
}

// productFolders are the folders of the product.
var productFolders = []string{"cmd/router", "internal", "pkg"}

// writeOverlay writes changed copies of the sources of the product below dir, and the file for
// go build -overlay. Each function begins with a call of trace.Enter, on the line of its brace, so
// that line numbers stay.
func writeOverlay(root, dir string) (file string, s *sources, err error) {
	s = &sources{}
	replaced := make(map[string]string)
	err = eachSource(root, func(name string, src []byte) error {
		changed, err := s.instrument(name, src)
		if err != nil || changed == nil {
			return err
		}
		copied := filepath.Join(dir, fmt.Sprintf("%d.go", len(replaced)))
		replaced[filepath.Join(root, name)] = copied
		return os.WriteFile(copied, changed, 0o600)
	})
	if err != nil {
		return "", nil, err
	}
	text, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		return "", nil, err
	}
	file = filepath.Join(dir, "overlay.json")
	return file, s, os.WriteFile(file, text, 0o600)
}

// eachSource calls do for each Go file of the product that is no test, with its path relative to
// the root.
func eachSource(root string, do func(name string, src []byte) error) error {
	for _, top := range productFolders {
		err := fs.WalkDir(os.DirFS(root), top, func(name string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && d.Name() == "testdata":
				return fs.SkipDir
			case d.IsDir() || path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go"):
				return nil
			}
			src, err := os.ReadFile(filepath.Join(root, name))
			if err != nil {
				return err
			}
			return do(name, src)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// insertion is text that the copy of a file has at an offset.
type insertion struct {
	offset int
	text   string
}

// instrument returns a copy of a file with calls of package trace; nil: the file has no function.
func (s *sources) instrument(name string, src []byte) ([]byte, error) {
	fset := token.NewFileSet()
	tree, err := parser.ParseFile(fset, name, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	in := &instrumenter{sources: s, fset: fset, file: name, dir: path.Dir(name), src: src}
	for _, decl := range tree.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			in.declaration(d)
		case *ast.GenDecl: // of a variable whose value has functions
			in.body(d, "")
		}
	}
	if len(in.insertions) == 0 {
		return nil, nil
	}
	in.insert(tree.Name.End(), fmt.Sprintf("; import spinetrace %q", module+"/test/spine/trace"))
	return in.result(), nil
}

// instrumenter collects the insertions of one file.
type instrumenter struct {
	*sources

	fset       *token.FileSet
	file, dir  string
	src        []byte
	insertions []insertion
}

func (in *instrumenter) insert(at token.Pos, text string) {
	in.insertions = append(in.insertions, insertion{in.fset.Position(at).Offset, text})
}

func (in *instrumenter) result() []byte {
	slices.SortStableFunc(in.insertions, func(a, b insertion) int { return cmp.Compare(a.offset, b.offset) })
	var out bytes.Buffer
	done := 0
	for _, i := range in.insertions {
		out.Write(in.src[done:i.offset])
		out.WriteString(i.text)
		done = i.offset
	}
	out.Write(in.src[done:])
	return out.Bytes()
}

// declaration changes a function or method. Functions that the compiler or the linker knows by
// their form stay: those without a body, init, and those with a directive about stack or linkage.
func (in *instrumenter) declaration(d *ast.FuncDecl) {
	if d.Body == nil || d.Recv == nil && d.Name.Name == "init" || hasDirective(d.Doc) {
		return
	}
	name := nameOf(d)
	if in.dir == "cmd/router" && name == "main" {
		in.insert(d.Body.Lbrace+1, " spinetrace.Serve();")
	}
	in.enter(d.Body, name)
	in.body(d.Body, name)
}

func hasDirective(doc *ast.CommentGroup) bool {
	return doc != nil && slices.ContainsFunc(doc.List, func(c *ast.Comment) bool {
		return strings.HasPrefix(c.Text, "//go:nosplit") || strings.HasPrefix(c.Text, "//go:linkname")
	})
}

// enter inserts the call at the beginning of a function.
func (in *instrumenter) enter(body *ast.BlockStmt, name string) {
	in.insert(body.Lbrace+1, fmt.Sprintf(" defer spinetrace.Enter(%d)();", len(in.functions)))
	in.functions = append(in.functions, function{
		dir: in.dir, name: name, file: in.file,
		begin: in.fset.Position(body.Lbrace).Line, end: in.fset.Position(body.Rbrace).Line,
	})
}

// body changes the function literals and the locks in a function.
func (in *instrumenter) body(n ast.Node, of string) {
	literals := 0
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			literals++
			name := strings.TrimPrefix(fmt.Sprintf("%s.func%d", of, literals), ".")
			in.enter(n.Body, name)
			in.body(n.Body, name)
			return false
		case *ast.ExprStmt:
			if name, ok := locked(n.X); ok {
				in.insert(n.Pos(), fmt.Sprintf("spinetrace.Lock(%d); ", len(in.locks)))
				in.locks = append(in.locks, lock{in.dir, name})
			}
		}
		return true
	})
}

// locked returns the text of x in the calls x.Lock() and x.RLock().
func locked(e ast.Expr) (name string, ok bool) {
	call, ok := e.(*ast.CallExpr)
	if !ok || len(call.Args) > 0 {
		return "", false
	}
	selector, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || selector.Sel.Name != "Lock" && selector.Sel.Name != "RLock" {
		return "", false
	}
	return text(selector.X), true
}

// text returns the names of an expression, joined by dots.
func text(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return text(e.X) + "." + e.Sel.Name
	case *ast.IndexExpr:
		return text(e.X) + "[]"
	case *ast.CallExpr:
		return text(e.Fun) + "()"
	case *ast.UnaryExpr:
		return text(e.X)
	case *ast.ParenExpr:
		return text(e.X)
	}
	return "?"
}

// nameOf returns the name of a function, and of a method Type.Method.
func nameOf(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return d.Name.Name
	}
	return receiver(d.Recv.List[0].Type) + "." + d.Name.Name
}

// receiver returns the name of the type of a method.
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

// at returns the innermost function that has a line of a file, as -trimpath names it; -1: none, it
// is no file of the product.
func (s *sources) at(file string, line int) int {
	file, own := strings.CutPrefix(file, module+"/")
	best := -1
	if !own {
		return best
	}
	for i, f := range s.functions {
		if f.file == file && f.begin <= line && line <= f.end && (best < 0 || f.end-f.begin <= s.functions[best].end-s.functions[best].begin) {
			best = i
		}
	}
	return best
}
