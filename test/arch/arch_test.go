package arch

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"github.com/deltarouter/deltarouter/test/must"
)

// root is the path of the repository.
const root = "../.."

// TestRepository checks every Go file of every module, and that the files of a folder are one
// package: the compiler does not see the files for other systems.
func TestRepository(t *testing.T) {
	files := 0
	packages := map[string]string{} // by folder
	said := map[string]bool{}       // report an unknown folder once, not for each file
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if base := path.Base(name); name != "." && (base[0] == '.' || base[0] == '_' || base == "testdata" || name == "bin") {
				return fs.SkipDir
			}
			return nil
		}
		if path.Ext(name) != ".go" {
			return nil
		}
		src, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return err
		}
		f, err := parse(name, src)
		if err != nil {
			return err
		}
		files++
		if is := strings.TrimSuffix(f.ast.Name.Name, "_test"); packages[f.dir] == "" {
			packages[f.dir] = is
		} else if is != packages[f.dir] {
			t.Errorf("%s is of package %s, and another file of the folder of package %s", name, is, packages[f.dir])
		}
		for _, problem := range f.check() {
			if !said[problem] {
				t.Error(problem)
			}
			said[problem] = true
		}
		return nil
	})
	must.Succeed(t, err)
	if files < 5 {
		t.Errorf("only %d Go files found: this test looks at the wrong folder", files)
	}
}

// TestPlanted shows that each rule finds its mistakes, and accepts correct files.
func TestPlanted(t *testing.T) {
	own := func(dir string) string { return "package p\nimport _ \"" + module + "/" + dir + "\"\n" }
	other := func(pkg string) string { return "package p\nimport _ \"" + pkg + "\"\n" }

	tests := []struct {
		name, file, src string
		want            string // part of the one problem; empty: none
	}{
		{"allowed import", "pkg/event/x.go", own("internal/rawjson"), ""},
		{"forbidden import", "pkg/event/x.go", own("internal/pipeline"), "x.go:2: pkg/event must not import internal/pipeline"},
		{"what is imported does not pass on its rights", "pkg/filters/x.go", own("internal/rawjson"), "pkg/filters must not import internal/rawjson"},
		{"a kind imports another", "pkg/plugins/stdout/x.go", own("pkg/plugins/webhook"), "must not import pkg/plugins/webhook"},
		{"a kind imports the pipeline", "pkg/plugins/stdout/x.go", own("internal/pipeline"), "must not import internal/pipeline"},
		{"a new kind needs no line", "pkg/plugins/kafka/x.go", own("pkg/plugins"), ""},
		{"a kind with a line of its own", "pkg/plugins/webhook/x.go", own("internal/cel"), ""},
		{"that line is not for the others", "pkg/plugins/kafka/x.go", own("internal/cel"), "must not import internal/cel"},
		{"the root imports a kind", "internal/router/x.go", own("pkg/plugins/wasm"), "must not import pkg/plugins/wasm"},
		{"the list of kinds imports a kind", "pkg/plugins/all/x.go", own("pkg/plugins/wasm"), ""},
		{"a guest imports the router", "examples/plugins/a/x.go", own("pkg/event"), "must not import pkg/event"},
		{"a guest imports the SDK", "examples/plugins/a/x.go", own("sdk/go"), ""},
		{"a test may import anything", "pkg/event/x_test.go", own("internal/pipeline"), ""},
		{"unknown package", "pkg/util/x.go", "package p\n", "pkg/util is not in the table"},
		{"unknown package below a kind", "pkg/plugins/wasm/deep/x.go", "package p\n", "is not in the table"},

		{"a library at home", "internal/cel/x.go", other("github.com/google/cel-go/cel"), ""},
		{"a library away from home", "pkg/filters/x.go", other("github.com/google/cel-go/cel"), "must not import github.com/google/cel-go/cel"},
		{"a library whose name only begins alike", "pkg/filters/x.go", other("github.com/google/cel-go2"), ""},
		{"a library that is welcome nowhere", "internal/rawjson/x.go", other("github.com/tidwall/gjson"), "must not import github.com/tidwall/gjson"},
		{"a library in a test", "pkg/filters/x_test.go", other("github.com/google/cel-go/cel"), ""},
		{"a library in a program", "test/bench/x.go", other("k8s.io/client-go/rest"), ""},

		{"init", "pkg/event/x.go", "package p\nfunc init() {}\n", "x.go:2: no init functions"},
		{"init as a method", "pkg/event/x.go", "package p\ntype t int\nfunc (t) init() {}\n", ""},
		{"unfinished", "pkg/event/x.go", "package p\nfunc f(a int) {\n\t_ = a // TODO\n}\n", "x.go:3: unfinished"},

		{"sleep", "pkg/event/x_test.go", "package p\nimport \"time\"\nfunc f() { time.Sleep(1) }\n", "x_test.go:3: a test that sleeps"},
		{"sleep in a test of a program", "test/x/x_test.go", "package p\nimport \"time\"\nfunc f() { time.Sleep(1) }\n", "x_test.go:3: a test that sleeps"},
		{"sleep with a reason", "test/child/child_test.go", "package p\nimport \"time\"\nfunc f() { time.Sleep(1) }\n", ""},
		{"real clock", "pkg/event/x_test.go", "package p\nvar c = timer.Real()\n", "x_test.go:2: a test with a real clock"},
		{"real clock of Kubernetes", "pkg/event/x_test.go", "package p\nvar c = clock.RealClock{}\n", "x_test.go:2: a test with a real clock"},
		{"sleep on a fake clock", "pkg/event/x_test.go", "package p\nimport (\n\"time\"\n_ \"testing/synctest\"\n)\nfunc f() { time.Sleep(1) }\n", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f, err := parse(tt.file, []byte(tt.src))
			must.Succeed(t, err)
			got := f.check()
			switch {
			case tt.want == "" && len(got) > 0:
				t.Errorf("got %q, want nothing", got)
			case tt.want != "" && (len(got) != 1 || !strings.Contains(got[0], tt.want)):
				t.Errorf("got %q, want one with %q", got, tt.want)
			}
		})
	}
}

// TestTable finds misspelt names in the table: each importable package must have an entry of its
// own.
func TestTable(t *testing.T) {
	for pattern, rule := range allowed {
		for _, name := range rule {
			if _, known := ruleOf(strings.TrimSuffix(name, "/...")); !known && name != anything {
				t.Errorf("%s may import %s, which is not in the table", pattern, name)
			}
		}
	}
	for dep, dirs := range homes {
		for _, dir := range dirs {
			if _, known := ruleOf(strings.TrimSuffix(dir, "/...")); !known {
				t.Errorf("%s lives in %s, which is not in the table", dep, dir)
			}
		}
	}
}

// TestLinterAgrees compares the homes with depguard's rules.
func TestLinterAgrees(t *testing.T) {
	var conf struct {
		Linters struct {
			Settings struct {
				Depguard struct {
					Rules map[string]struct {
						Files []string
						Deny  []struct{ Pkg, Desc string }
					}
				}
			}
		}
	}
	src, err := os.ReadFile(filepath.Join(root, ".golangci.yml"))
	must.Succeed(t, err)
	must.Succeed(t, yaml.Unmarshal(src, &conf))

	denied := map[string][]string{}
	for rule, r := range conf.Linters.Settings.Depguard.Rules {
		var dirs []string
		for _, glob := range r.Files {
			if dir, ok := strings.CutPrefix(glob, "!**/"); ok && !(&file{dir: dir}).program() {
				dirs = append(dirs, strings.TrimSuffix(dir, "/**"))
			}
		}
		for _, d := range r.Deny {
			if d.Desc == "" {
				t.Errorf("depguard rule %s denies %s without a reason", rule, d.Pkg)
			}
			// an exact name is a standard package, not a heavy one
			if !strings.HasSuffix(d.Pkg, "$") {
				denied[d.Pkg] = dirs
			}
		}
	}
	for dep, dirs := range homes {
		want := make([]string, len(dirs))
		for i, dir := range dirs {
			// globs of depguard include subfolders
			want[i] = strings.TrimSuffix(dir, "/...")
		}
		if got, ok := denied[dep]; !ok || !slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))) {
			t.Errorf("%s: test/arch has its home in %q, depguard in %q", dep, want, got)
		}
	}
	for dep := range denied {
		if _, ok := homes[dep]; !ok {
			t.Errorf("%s: depguard denies it, test/arch has no home for it", dep)
		}
	}
}
