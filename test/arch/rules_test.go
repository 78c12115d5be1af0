package arch

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"regexp"
	"strconv"
	"strings"
)

// file is one Go source file of the repository.
type file struct {
	dir  string // of the package, relative to the root, with slashes
	name string
	src  []byte
	ast  *ast.File
	fset *token.FileSet
}

func parse(filename string, src []byte) (*file, error) {
	fset := token.NewFileSet()
	tree, err := parser.ParseFile(fset, filename, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	return &file{dir: path.Dir(filename), name: path.Base(filename), src: src, ast: tree, fset: fset}, nil
}

func (f *file) test() bool { return strings.HasSuffix(f.name, "_test.go") }

// program reports whether the file belongs to a program or test beside the router. Such files may
// use any library.
func (f *file) program() bool {
	top, _, _ := strings.Cut(f.dir, "/")
	return top != "cmd" && top != "internal" && top != "pkg"
}

func (f *file) at(pos token.Pos) string {
	return fmt.Sprintf("%s/%s:%d", f.dir, f.name, f.fset.Position(pos).Line)
}

// check returns the problems of the file, one line each.
func (f *file) check() []string {
	var problems []string
	if !f.test() {
		problems = append(problems, f.checkImports()...)
		if !ast.IsGenerated(f.ast) {
			problems = append(problems, f.checkHabits()...)
		}
	} else {
		problems = append(problems, f.checkTime()...)
	}
	return problems
}

func (f *file) checkImports() []string {
	var problems []string
	rule, known := ruleOf(f.dir)
	if !known {
		problems = append(problems, f.dir+" is not in the table of test/arch/table_test.go: say there what it may import")
	}
	for _, spec := range f.ast.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue // the compiler reports it
		}
		if imported != module && !under(imported, module) {
			problems = append(problems, f.checkHome(spec, imported)...)
			continue
		}
		own := strings.TrimPrefix(strings.TrimPrefix(imported, module), "/")
		if known && !allows(rule, own) {
			problems = append(problems, fmt.Sprintf("%s: %s must not import %s (it may import: %s)",
				f.at(spec.Pos()), f.dir, own, strings.Join(rule, " ")))
		}
	}
	return problems
}

func (f *file) checkHome(spec *ast.ImportSpec, imported string) []string {
	if f.program() {
		return nil
	}
	for dep, dirs := range homes {
		if (imported == dep || under(imported, dep)) && !allows(dirs, f.dir) {
			return []string{fmt.Sprintf("%s: %s must not import %s: .golangci.yml says where it lives and why",
				f.at(spec.Pos()), f.dir, imported)}
		}
	}
	return nil
}

// later matches an assignment that only silences the compiler for unfinished code.
var later = regexp.MustCompile(`(?m)^\s*_ = .*TODO`)

func (f *file) checkHabits() []string {
	var problems []string
	for _, decl := range f.ast.Decls {
		if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
			problems = append(problems, f.at(fn.Pos())+": no init functions: what exists is listed in pkg/plugins/all")
		}
	}
	for _, loc := range later.FindAllIndex(f.src, -1) {
		line := 1 + strings.Count(strings.TrimRight(string(f.src[:loc[1]]), "\n"), "\n")
		problems = append(problems, fmt.Sprintf("%s/%s:%d: unfinished", f.dir, f.name, line))
	}
	return problems
}

// checkTime refuses what makes a test slow or flaky: sleeps and the real clock, outside of files
// with testing/synctest, whose clock is fake.
func (f *file) checkTime() []string {
	for _, spec := range f.ast.Imports {
		if spec.Path.Value == `"testing/synctest"` {
			return nil
		}
	}
	if _, permitted := realTime[path.Join(f.dir, f.name)]; permitted {
		return nil
	}
	var problems []string
	ast.Inspect(f.ast, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		pkg, ok := sel.X.(*ast.Ident)
		switch {
		case !ok:
		case pkg.Name == "time" && sel.Sel.Name == "Sleep":
			problems = append(problems, f.at(sel.Pos())+": a test that sleeps is slow or flaky: use testing/synctest, or wait for what is expected")
		case pkg.Name == "timer" && sel.Sel.Name == "Real", pkg.Name == "clock" && sel.Sel.Name == "RealClock":
			problems = append(problems, f.at(sel.Pos())+": a test with a real clock is slow or flaky: use timer.NewFake or testing/synctest")
		}
		return true
	})
	return problems
}

// ruleOf returns the most exact entry of the table for a folder.
func ruleOf(dir string) (rule []string, known bool) {
	best := ""
	for pattern, r := range allowed {
		if matches(pattern, dir) && (!known || exactness(pattern) > exactness(best)) {
			best, rule, known = pattern, r, true
		}
	}
	return rule, known
}

// exactness orders the patterns that match one folder: a plain name, then /*, then the longest
// /....
func exactness(pattern string) int {
	switch {
	case strings.HasSuffix(pattern, "/..."):
		return len(pattern)
	case strings.HasSuffix(pattern, "/*"):
		return 1000
	default:
		return 2000
	}
}

func allows(patterns []string, dir string) bool {
	for _, p := range patterns {
		if p == anything || matches(p, dir) {
			return true
		}
	}
	return false
}

func matches(pattern, dir string) bool {
	if base, ok := strings.CutSuffix(pattern, "/..."); ok {
		return dir == base || under(dir, base)
	}
	if base, ok := strings.CutSuffix(pattern, "/*"); ok {
		return path.Dir(dir) == base
	}
	return pattern == dir
}

// under reports whether a path is below another.
func under(name, base string) bool { return strings.HasPrefix(name, base+"/") }
