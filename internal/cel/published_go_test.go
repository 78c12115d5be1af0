//go:build !race

package cel

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/test/must"
)

// libraryTests returns the tests of Kubernetes' libraries: the fields beside `expr` in their
// tables.
func libraryTests(t *testing.T) (tests []published) {
	t.Helper()
	files, _ := filepath.Glob(filepath.Join(moduleDir(".", "k8s.io/apiserver"), "pkg/cel/library/*_test.go"))
	for _, file := range files {
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		must.Succeed(t, err)
		ast.Inspect(tree, func(n ast.Node) bool {
			if kv, ok := n.(*ast.KeyValueExpr); ok {
				if key, ok := kv.Key.(*ast.Ident); ok && key.Name == "expr" {
					if text, ok := goValue(kv.Value).(string); ok {
						tests = append(tests, published{from: filepath.Base(file), text: text})
					}
				}
			}
			return true
		})
	}
	return tests
}

// validationTests are the rules of Kubernetes' tests of validation that hold, with the objects that
// they hold for.
func validationTests(t *testing.T) (tests []published) {
	t.Helper()
	dir := moduleDir("../../tools/sandbox", "k8s.io/apiextensions-apiserver")
	tree, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, "pkg/apiserver/schema/cel/validation_test.go"), nil, 0)
	if err != nil {
		return nil
	}
	ast.Inspect(tree, func(n ast.Node) bool {
		table, ok := n.(*ast.CompositeLit)
		if !ok {
			return true
		}
		var object any
		var rules []any
		for _, elem := range table.Elts {
			if kv, ok := elem.(*ast.KeyValueExpr); ok {
				switch key, _ := kv.Key.(*ast.Ident); {
				case key == nil:
				case key.Name == "obj":
					object = goValue(kv.Value)
				case key.Name == "valid":
					rules, _ = goValue(kv.Value).([]any)
				}
			}
		}
		text, err := json.Marshal(object)
		for _, rule := range rules {
			if rule, ok := rule.(string); ok && object != nil && err == nil && !strings.Contains(string(text), unknownValue) {
				tests = append(tests, published{from: "validation_test.go", text: rule, object: string(text)})
			}
		}
		return true
	})
	return tests
}

// unknownValue stands for Go that is no constant.
const unknownValue = "\u2753"

// goValue is the value of a constant, a list or a map in Go's text.
func goValue(e ast.Expr) any {
	switch e := e.(type) {
	case *ast.BasicLit:
		if text, err := strconv.Unquote(e.Value); err == nil {
			return text
		}
		return json.Number(e.Value)
	case *ast.Ident:
		if v, ok := map[string]any{"true": true, "false": false, "nil": nil}[e.Name]; ok {
			return v
		}
	case *ast.UnaryExpr:
		if n, ok := goValue(e.X).(json.Number); ok && e.Op == token.SUB {
			return "-" + n
		}
	case *ast.BinaryExpr:
		a, ok1 := goValue(e.X).(string)
		b, ok2 := goValue(e.Y).(string)
		if ok1 && ok2 && e.Op == token.ADD {
			return a + b
		}
	case *ast.CallExpr:
		return goCall(e)
	case *ast.CompositeLit:
		if _, list := e.Type.(*ast.ArrayType); list || e.Type == nil {
			all := []any{}
			for _, elem := range e.Elts {
				all = append(all, goValue(elem))
			}
			return all
		}
		all := make(map[string]any)
		for _, elem := range e.Elts {
			if kv, ok := elem.(*ast.KeyValueExpr); ok {
				all[fmt.Sprint(goValue(kv.Key))] = goValue(kv.Value)
			}
		}
		return all
	}
	return unknownValue
}

// goCall evaluates conversions, and the function objs() of those tests.
func goCall(e *ast.CallExpr) any {
	name, _ := e.Fun.(*ast.Ident)
	switch {
	case name == nil:
	case name.Name == "objs":
		all := make(map[string]any)
		for i, arg := range e.Args {
			all["val"+strconv.Itoa(i+1)] = goValue(arg)
		}
		return all
	case len(e.Args) == 1 && (name.Name == "float64" || name.Name == "float32"):
		if n, ok := goValue(e.Args[0]).(json.Number); ok && !strings.ContainsAny(n.String(), ".eE") {
			return n + ".0"
		}
		return goValue(e.Args[0])
	case len(e.Args) == 1 && strings.HasPrefix(name.Name, "int"):
		return goValue(e.Args[0])
	}
	return unknownValue
}
