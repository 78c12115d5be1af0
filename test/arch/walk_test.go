package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/test/must"
)

var (
	// walkRow is a step of the walk in CONTRIBUTING.md: its package and its functions.
	walkRow = regexp.MustCompile("(?m)^\\| \\w+ \\| `([\\w/-]+)` \\| ([^|]+) \\|")
	quoted  = regexp.MustCompile("`([\\w.]+)`")
)

// TestWalk: the functions in the walk of CONTRIBUTING.md exist in the packages that it names.
func TestWalk(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "CONTRIBUTING.md"))
	must.Succeed(t, err)
	_, walk, _ := strings.Cut(string(text), "## The way of one delta\n")
	walk, _, _ = strings.Cut(walk, "\n## ")
	names := 0
	for _, row := range walkRow.FindAllStringSubmatch(walk, -1) {
		declared := declaredFunctions(t, row[1])
		for _, name := range quoted.FindAllStringSubmatch(row[2], -1) {
			names++
			if !declared[name[1]] {
				t.Errorf("CONTRIBUTING.md names %s, which is not in %s", name[1], row[1])
			}
		}
	}
	if names < 25 {
		t.Errorf("only %d functions were found", names)
	}
}

// declaredFunctions returns the functions of a package, and its methods as Type.Method.
func declaredFunctions(t *testing.T, dir string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(dir), "*.go"))
	must.Succeed(t, err)
	declared := make(map[string]bool)
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		must.Succeed(t, err)
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				declared[methodOf(f)+f.Name.Name] = true
			}
		}
	}
	return declared
}

// methodOf returns "Type." of a method, and nothing of a function.
func methodOf(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return ""
	}
	return receiver(f.Recv.List[0].Type) + "."
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
