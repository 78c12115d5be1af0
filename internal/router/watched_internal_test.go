package router

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/deltarouter/deltarouter/test/must"
)

// TestWatchedFolder: a file that is changed, added or removed is a change of the folder, at the
// second look.
func TestWatchedFolder(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) func() {
		return func() { must.Succeed(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600)) }
	}
	remove := func(name string) func() {
		return func() { must.Succeed(t, os.Remove(filepath.Join(dir, name))) }
	}
	write("a.yaml", "a: 1")()
	f := newWatchedFile(dir)
	for _, step := range []struct {
		name string
		do   func()
		want bool
	}{
		{"nothing", func() {}, false},
		{"added", write("b.yml", "b: 1"), true},
		{"changed", write("a.yaml", "a: 12"), true},
		{"rewritten", write("a.yaml", "a: 12"), false},
		{"removed", remove("b.yml"), true},
		{"of another kind", write("a_test.yaml", "cases: []"), false},
		{"locked", write("plugins.lock", "modules: []"), true},
		{"unlocked", remove("plugins.lock"), true},
		{"hidden", write(".b.yaml", "b: 1"), false},
		{"renamed", func() {
			must.Succeed(t, os.Rename(filepath.Join(dir, "a.yaml"), filepath.Join(dir, "c.yaml")))
		}, true},
		{"empty", remove("c.yaml"), false},
		{"full again", write("c.yaml", "c: 1"), true},
	} {
		step.do()
		if first := f.changed(); first {
			t.Errorf("%s: a change at the first look", step.name)
		}
		if got := f.changed(); got != step.want {
			t.Errorf("%s: changed is %t, want %t", step.name, got, step.want)
		}
		if f.changed() {
			t.Errorf("%s: a change twice", step.name)
		}
	}
}

// TestWatchedLock: the digests of modules beside a file are a part of the configuration.
func TestWatchedLock(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "router.yaml")
	must.Succeed(t, os.WriteFile(path, []byte("a: 1"), 0o600))
	f := newWatchedFile(path)
	must.Succeed(t, os.WriteFile(filepath.Join(dir, "plugins.lock"), []byte("modules: []"), 0o600))
	if first, second := f.changed(), f.changed(); first || !second {
		t.Errorf("a new file: changed is %t, then %t", first, second)
	}
	if !f.same() {
		t.Error("the file differs from itself")
	}
}
