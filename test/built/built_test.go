package built

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/test/leaks"
	"github.com/deltarouter/deltarouter/test/must"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// write writes the files of a program with a module of its own beside it.
func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		file := filepath.Join(dir, name)
		must.Succeed(t, os.MkdirAll(filepath.Dir(file), 0o700))
		must.Succeed(t, os.WriteFile(file, []byte(text), 0o600))
	}
}

// TestBuild: a program is compiled again if and only if one of its sources has changed, also those
// of a module behind replace.
func TestBuild(t *testing.T) {
	dir, root := t.TempDir(), t.TempDir()
	p := Program{Dir: filepath.Join(dir, "program"), Flags: []string{"-ldflags=-s -w"}}
	write(t, dir, map[string]string{
		"program/go.mod":       "module program\n\ngo 1.26\n\nrequire sdk v0.0.0\n\nreplace sdk => ../sdk\n",
		"program/main.go":      "package main\n\nimport \"sdk\"\n\nfunc main() { sdk.Do() }\n",
		"program/main_test.go": "package main\n",
		"sdk/go.mod":           "module sdk\n\ngo 1.26\n",
		"sdk/sdk.go":           "package sdk\n\nfunc Do() {}\n",
	})
	first, err := p.buildIn(root)
	must.Succeed(t, err)
	if filepath.Base(first) != "program" {
		t.Errorf("it is named %s", first)
	}
	made, err := os.Stat(first)
	must.Succeed(t, err)
	again, err := p.buildIn(root)
	must.Succeed(t, err)
	if now, err := os.Stat(again); err != nil || again != first || !os.SameFile(now, made) {
		t.Errorf("it is compiled again: %s and %s, %v", first, again, err)
	}
	key := func() string {
		t.Helper()
		s, err := p.sources()
		must.Succeed(t, err)
		return s.key
	}
	last := key()
	for _, c := range []struct {
		name, file, text string
		changes          bool
	}{
		{"a test", "program/main_test.go", "package main\n\nimport \"testing\"\n", false},
		{"a source", "program/main.go", "package main\n\nimport \"sdk\"\n\nfunc main() { sdk.Do(); sdk.Do() }\n", true},
		{"a new source", "program/more.go", "package main\n\nvar More = 1\n", true},
		{"a source behind replace", "sdk/sdk.go", "package sdk\n\nfunc Do() { println() }\n", true},
		{"go.mod", "sdk/go.mod", "module sdk\n\ngo 1.25\n", true},
	} {
		write(t, dir, map[string]string{c.file: c.text})
		now := key()
		if (now != last) != c.changes {
			t.Errorf("%s: it is another program: %v, want %v", c.name, now != last, c.changes)
		}
		last = now
	}
	p.Flags = nil
	if key() == last {
		t.Error("the flags do not count")
	}
	p.Env = []string{"GOOS=wasip1", "GOARCH=wasm"}
	if other, err := p.sources(); err != nil || other.key == last {
		t.Errorf("the environment does not count, %v", err)
	}
	write(t, dir, map[string]string{"sdk/sdk.go": "package sdk\n\nfunc Do() { undefined() }\n"})
	_, err = p.buildIn(root)
	must.Fail(t, err, "undefined: undefined")
	if left, err := filepath.Glob(filepath.Join(root, "new-*")); err != nil || len(left) > 0 {
		t.Errorf("it left %v, %v", left, err)
	}
}

// TestFile: a program of a file, which is in no module.
func TestFile(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"main.go": "package main\n\nfunc main() {}\n"})
	s, err := Program{Dir: dir, Package: "main.go"}.sources()
	must.Succeed(t, err)
	write(t, dir, map[string]string{"main.go": "package main\n\nfunc main() { println() }\n"})
	if other, err := (Program{Dir: dir, Package: "main.go"}).sources(); err != nil || other.key == s.key {
		t.Errorf("its source does not count, %v", err)
	}
}

// TestAtOnce: a program that is needed by many at the same time is there for all of them.
func TestAtOnce(t *testing.T) {
	dir, root := t.TempDir(), t.TempDir()
	write(t, dir, map[string]string{"go.mod": "module program\n\ngo 1.26\n", "main.go": "package main\n\nfunc main() {}\n"})
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			file, err := Program{Dir: dir}.buildIn(root)
			must.Report(t, err)
			_, err = os.Stat(file)
			must.Report(t, err)
		})
	}
	all.Wait()
	if entries, err := filepath.Glob(filepath.Join(root, "[^.]*")); err != nil || len(entries) != 1 {
		t.Errorf("there are %v, %v", entries, err)
	}
}

func TestPrune(t *testing.T) {
	root, now := t.TempDir(), time.Now()
	for name, e := range map[string]struct {
		age  time.Duration
		size int64
	}{
		"new": {0, keptBytes}, "of today": {keptFor / 2, keptBytes}, "old": {2 * keptFor, 1}, "older": {3 * keptFor, keptBytes},
	} {
		dir := filepath.Join(root, name)
		write(t, dir, map[string]string{"program": ""})
		must.Succeed(t, os.Truncate(filepath.Join(dir, "program"), e.size))
		for _, file := range []string{filepath.Join(dir, "program"), dir} {
			must.Succeed(t, os.Chtimes(file, now.Add(-e.age), now.Add(-e.age)))
		}
	}
	left := func() string {
		prune(root, now)
		names, err := filepath.Glob(filepath.Join(root, "*"))
		must.Succeed(t, err)
		for i := range names {
			names[i] = filepath.Base(names[i])
		}
		return strings.Join(names, ", ")
	}
	if got := left(); got != "new, of today" {
		t.Errorf("there are %s", got)
	}
	must.Succeed(t, os.RemoveAll(filepath.Join(root, "new")))
	must.Succeed(t, os.Truncate(filepath.Join(root, "of today", "program"), 1))
	must.Succeed(t, os.Chtimes(filepath.Join(root, "of today"), now.Add(-9*keptFor), now.Add(-9*keptFor)))
	if got := left(); got != "of today" {
		t.Errorf("a small entry is removed, there are %q", got)
	}
}

func TestNameOf(t *testing.T) {
	for importPath, want := range map[string]string{"guest": "guest", "github.com/nats-io/nats-server/v2": "nats-server", "v2": "v2"} {
		if got := nameOf(importPath); got != want {
			t.Errorf("%s: %s, want %s", importPath, got, want)
		}
	}
}
