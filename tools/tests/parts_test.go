package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/test/targets"
)

// TestParts shows that make test has all packages that make e2e has not, each once, and that make
// test-all runs a package without the race detector, too, if its tests do less with it.
func TestParts(t *testing.T) {
	r := &repository{
		packages: []pkg{
			{"pkg/a", []string{"sync"}, true},
			{"pkg/b", []string{"strings"}, false},
			{"internal/cel/x", []string{"sync"}, false},
			{"test/e2e", []string{"sync"}, false},
		},
		modules: []string{"sdk/go", "tools/sandbox"},
	}
	folders := func(target string, names ...string) (all []string) {
		parts, err := r.parts(target, names)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range parts {
			for _, arg := range p.command {
				if strings.HasPrefix(arg, "./") {
					all = append(all, strings.TrimPrefix(arg, "./")+" of "+p.dir)
				}
			}
		}
		return all
	}
	for target, want := range map[string][]string{
		targets.Test: {"pkg/a of .", "pkg/b of .", "internal/cel/x of .", "test/e2e of .", "... of sdk/go"},
		targets.Race: {"pkg/a of ."},
		targets.E2E:  {"test/e2e of .", "... of tools/sandbox"},
		targets.All:  {"pkg/a of .", "pkg/b of .", "internal/cel/x of .", "... of sdk/go", "pkg/a of .", "test/e2e of .", "... of tools/sandbox"},
	} {
		if got := folders(target); !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", target, got, want)
		}
	}
	if got := folders(targets.Soak, "damage"); !slices.Equal(got, []string{"internal/checkpoint of ."}) {
		t.Errorf("soak: got %q", got)
	}
}

// TestModules shows that a module without tests is no part: go test fails for it.
func TestModules(t *testing.T) {
	t.Chdir(filepath.Join("..", ".."))
	dirs, err := modules(".")
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(dirs, "sdk/go") || slices.Contains(dirs, "tools/pins") || slices.Contains(dirs, "tools/pins/actionlint") || slices.Contains(dirs, ".") {
		t.Errorf("got %q", dirs)
	}
	for _, dir := range targets.ProcessModules {
		if !slices.Contains(dirs, dir) {
			t.Errorf("%s has no tests", dir)
		}
	}
}

func TestUnknown(t *testing.T) {
	for _, words := range [][]string{{"tests"}, {"test", "x"}, {"soak", "x"}, {"e2e", "newest"}} {
		if _, err := new(repository).parts(words[0], words[1:]); err == nil || !strings.Contains(err.Error(), `"`+words[len(words)-1]+`"`) {
			t.Errorf("%q: %v", words, err)
		}
	}
}

// TestNames shows that the tests that targets names exist: go test accepts a pattern that matches
// nothing.
func TestNames(t *testing.T) {
	check := func(folders []string, names ...string) {
		var text []byte
		for _, folder := range folders {
			files, err := filepath.Glob(filepath.Join("..", "..", folder, "*_test.go"))
			if err != nil || len(files) == 0 {
				t.Errorf("%s has no tests: %v", folder, err)
			}
			for _, file := range files {
				b, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				text = append(text, b...)
			}
		}
		for _, name := range names {
			if !regexp.MustCompile(`(?m)^func ` + strings.TrimSuffix(name, "$") + `\w*\(t \*testing\.T\)`).Match(text) {
				t.Errorf("%s has no test %s", folders, name)
			}
		}
	}
	check([]string{targets.SmokeFolder}, targets.Smoke...)
	check(targets.OldestFolders, targets.Oldest...)
	for _, s := range targets.Slices {
		check([]string{s.Folder}, s.Tests...)
	}
}
