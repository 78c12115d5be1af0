package arch

import (
	"go/ast"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/targets"
)

var toolchain = regexp.MustCompile(`(?m)^toolchain (go1\.\d+\.\d+)$`)

// TestToolchain shows that all modules require the same patch release of Go, so that a security fix
// of the standard library reaches all of them. Go downloads the release if the installed one is
// older. Dependabot knows all modules.
func TestToolchain(t *testing.T) {
	updates, err := os.ReadFile(filepath.Join(root, ".github", "dependabot.yml"))
	must.Succeed(t, err)
	found := map[string]string{}
	var folders []string
	err = fs.WalkDir(os.DirFS(root), ".", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && (name == "bin" || name == ".git" || entry.Name() == "node_modules") {
			return fs.SkipDir
		}
		if err != nil || path.Base(name) != "go.mod" {
			return err
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return err
		}
		match := toolchain.FindStringSubmatch(string(text))
		if match == nil {
			t.Errorf("%s names no toolchain", name)
			return nil
		}
		found[match[1]] = name
		folders = append(folders, strings.TrimPrefix(path.Dir(name), "."))
		return nil
	})
	must.Succeed(t, err)
	if len(found) != 1 {
		t.Errorf("different toolchains: %v", found)
	}
	for _, folder := range folders {
		if !strings.Contains(string(updates), "      - /"+folder+"\n") {
			t.Errorf(".github/dependabot.yml does not update the module in /%s", folder)
		}
	}
}

// TestNightly shows that the nightly workflow runs every slice of make soak.
func TestNightly(t *testing.T) {
	workflow, err := os.ReadFile(filepath.Join(root, ".github", "workflows", "nightly.yml"))
	must.Succeed(t, err)
	for _, s := range targets.Slices {
		if !strings.Contains(string(workflow), "- soak SLICE="+s.Name+"\n") {
			t.Errorf("nightly.yml does not run make soak SLICE=%s", s.Name)
		}
	}
}

// TestSDKsAlike compares sdk/go and sdk/process. They share no code, since one must be small and
// the other is part of the router's module, but the input and output of handlers must be the same.
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
	must.Succeed(t, err)
	for _, source := range sources {
		src, err := os.ReadFile(source)
		must.Succeed(t, err)
		f, err := parse(source, src)
		must.Succeed(t, err)
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
