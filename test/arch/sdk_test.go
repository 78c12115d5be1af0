package arch

import (
	"go/ast"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestSDKsAlike: sdk/go and sdk/process share no code, since one must be small and the other is part of the router's module. What a handler
// gets and returns is the same all the same.
func TestSDKsAlike(t *testing.T) {
	for _, name := range []string{"Delta", "RouteEvent", "Event"} {
		guest, native := exportedFields(t, "sdk/go", name), exportedFields(t, "sdk/process", name)
		if len(guest) == 0 || !slices.Equal(guest, native) {
			t.Errorf("%s of sdk/go has\n%s\nthat of sdk/process\n%s", name, strings.Join(guest, "\n"), strings.Join(native, "\n"))
		}
	}
}

// exportedFields returns the names and types of the fields of a struct.
func exportedFields(t *testing.T, dir, name string) (fields []string) {
	t.Helper()
	sources, err := filepath.Glob("../../" + dir + "/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, source := range sources {
		src, err := os.ReadFile(source)
		if err != nil {
			t.Fatal(err)
		}
		f, err := parse(source, src)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok || spec.Name.Name != name {
				return true
			}
			of, ok := spec.Type.(*ast.StructType)
			if !ok {
				return true
			}
			for _, field := range of.Fields.List {
				for _, id := range field.Names {
					if id.IsExported() {
						from, to := f.fset.Position(field.Type.Pos()), f.fset.Position(field.Type.End())
						fields = append(fields, id.Name+" "+string(src[from.Offset:to.Offset]))
					}
				}
			}
			return false
		})
	}
	slices.Sort(fields)
	return fields
}
