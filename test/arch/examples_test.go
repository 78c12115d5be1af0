package arch

import (
	"go/doc"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/test/must"
)

// TestPublicExamples shows that each package that other programs can import has an example, which
// `go test` runs and compares with its output, and which such a program could contain.
func TestPublicExamples(t *testing.T) {
	for _, dir := range publicPackages(t) {
		names, err := filepath.Glob(filepath.Join(root, dir, "*_test.go"))
		must.Succeed(t, err)
		var tests []*file
		for _, name := range names {
			src, err := os.ReadFile(name)
			must.Succeed(t, err)
			f, err := parse(dir+"/"+filepath.Base(name), src)
			must.Succeed(t, err)
			tests = append(tests, f)
		}
		for _, problem := range exampleProblems(dir, tests) {
			t.Error(problem)
		}
	}
}

// publicPackages returns the folders of the packages that other programs can import.
func publicPackages(t *testing.T) (dirs []string) {
	t.Helper()
	for dir := range synopses(t) {
		if under(dir, "pkg") && !slices.Contains(strings.Split(dir, "/"), "internal") {
			dirs = append(dirs, dir)
		}
	}
	slices.Sort(dirs)
	if len(dirs) < 20 {
		t.Errorf("only %d packages were found below pkg: %s", len(dirs), dirs)
	}
	return dirs
}

// exampleProblems returns the mistakes of the examples in the tests of a package.
func exampleProblems(dir string, tests []*file) (problems []string) {
	runnable := 0
	for _, f := range tests {
		for _, example := range doc.Examples(f.ast) {
			if example.Output != "" || example.EmptyOutput {
				runnable++
			} else {
				problems = append(problems, f.dir+"/"+f.name+": Example"+example.Name+" has no output, so go test does not run it")
			}
			problems = append(problems, f.foreign()...)
		}
	}
	if runnable == 0 {
		problems = append(problems, dir+" has no Example with an output: show what another program does with the package")
	}
	slices.Sort(problems)
	return slices.Compact(problems) // one for each file, not for each of its examples
}

// foreign returns the reasons why another program could not have the file.
func (f *file) foreign() (problems []string) {
	if !strings.HasSuffix(f.ast.Name.Name, "_test") {
		problems = append(problems, f.dir+"/"+f.name+": an example belongs to package "+f.ast.Name.Name+"_test, which sees what is exported only")
	}
	for _, spec := range f.ast.Imports {
		if imported, _ := strconv.Unquote(spec.Path.Value); hidden(imported) {
			problems = append(problems, f.at(spec.Pos())+": an example must not import "+strings.TrimPrefix(imported, module+"/"))
		}
	}
	return problems
}

// hidden reports whether a package is for this repository only: other programs cannot import
// internal, and are not meant to import test.
func hidden(imported string) bool {
	return internal(imported) || under(imported, module+"/test")
}

// TestPlantedExamples shows that the check of examples finds mistakes.
func TestPlantedExamples(t *testing.T) {
	const example = "func ExampleF() {\n// Output: 1\n}\n"
	for _, tt := range []struct{ name, src, want string }{
		{"an example", "package p_test\n" + example, ""},
		{"a test only", "package p_test\nfunc TestF() {}\n", "pkg/p has no Example"},
		{"an example that does not run", "package p_test\nfunc ExampleF() {}\n" + strings.Replace(example, "ExampleF", "ExampleG", 1), "ExampleF has no output"},
		{"an example inside of the package", "package p\n" + example, "belongs to package p_test"},
		{"an internal package", "package p_test\nimport _ \"" + module + "/internal/timer\"\n" + example, "must not import internal/timer"},
		{"an internal package of another", "package p_test\nimport _ \"" + module + "/pkg/q/internal/r\"\n" + example, "must not import pkg/q/internal/r"},
		{"a package of tests", "package p_test\nimport _ \"" + module + "/test/must\"\n" + example, "must not import test/must"},
		{"a public package", "package p_test\nimport _ \"" + module + "/pkg/event\"\n" + example, ""},
		{"a test beside with other imports", "package p_test\nimport _ \"" + module + "/test/must\"\nfunc TestF() {}\n", "pkg/p has no Example"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f, err := parse("pkg/p/example_test.go", []byte(tt.src))
			must.Succeed(t, err)
			got := strings.Join(exampleProblems("pkg/p", []*file{f}), "; ")
			if (tt.want == "") != (got == "") || !strings.Contains(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
