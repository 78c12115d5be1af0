package engine

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/test/must"
)

// fill keeps code of a size for a module, as of a process at a time.
func fill(t *testing.T, c codeCache, module string, size int, at time.Time) place {
	t.Helper()
	p, err := c.open([]byte(module))
	must.Succeed(t, err)
	if p.kept {
		t.Fatalf("%s is there already", module)
	}
	must.Succeed(t, os.WriteFile(filepath.Join(p.dir, "code"), make([]byte, size), 0o600))
	must.Succeed(t, c.keep(p))
	must.Succeed(t, os.Chtimes(filepath.Join(p.final, sealFile), at, at))
	return p
}

func isKept(t *testing.T, c codeCache, module string) bool {
	t.Helper()
	p, err := c.open([]byte(module))
	must.Succeed(t, err)
	if !p.kept {
		p.discard()
	}
	return p.kept
}

// TestCodeBound: the folder of compiled modules is bounded, and keeps what was used last.
func TestCodeBound(t *testing.T) {
	c := codeCache{filepath.Join(t.TempDir(), "wasm"), 100}
	now := time.Now()
	fill(t, c, "a", 40, now.Add(-3*time.Hour))
	fill(t, c, "b", 40, now.Add(-2*time.Hour))
	p, err := c.open([]byte("a"))
	must.Succeed(t, err)
	must.Succeed(t, c.keep(p)) // it was loaded, and is the last one now
	fill(t, c, "c", 40, now)
	for module, want := range map[string]bool{"a": true, "b": false, "c": true} {
		if isKept(t, c, module) != want {
			t.Errorf("%s is kept: %v", module, !want)
		}
	}
}

// TestUnusedCode: a module that was not used for long is removed.
func TestUnusedCode(t *testing.T) {
	c := codeCache{filepath.Join(t.TempDir(), "wasm"), maxCode}
	now := time.Now()
	fill(t, c, "old", 1, now.Add(-2*keepCode))
	fill(t, c, "recent", 1, now.Add(-keepCode/2))
	fill(t, c, "new", 1, now)
	for module, want := range map[string]bool{"old": false, "recent": true, "new": true} {
		if isKept(t, c, module) != want {
			t.Errorf("%s is kept: %v", module, !want)
		}
	}
}

// TestAbandoned: a folder that a process did not fill is not read, and removed later.
func TestAbandoned(t *testing.T) {
	c := codeCache{filepath.Join(t.TempDir(), "wasm"), maxCode}
	dead, err := c.open([]byte("a"))
	must.Succeed(t, err)
	must.Succeed(t, os.WriteFile(filepath.Join(dead.dir, "code"), nil, 0o600))
	if isKept(t, c, "a") {
		t.Error("it is read")
	}
	fill(t, c, "b", 1, time.Now())
	if _, err := os.Stat(dead.dir); err != nil {
		t.Errorf("a process may be filling it: %v", err)
	}
	old := time.Now().Add(-2 * abandoned)
	must.Succeed(t, os.Chtimes(dead.dir, old, old))
	fill(t, c, "c", 1, time.Now())
	if _, err := os.Stat(dead.dir); err == nil {
		t.Error("it was left")
	}
}

// TestTwoProcesses: of two processes that compile a module at the same time, each keeps what it
// has, and the folder has the code of one.
func TestTwoProcesses(t *testing.T) {
	// Guarantee: compiled-private
	c := codeCache{filepath.Join(t.TempDir(), "wasm"), maxCode}
	var places []place
	for range 2 {
		p, err := c.open([]byte("a"))
		must.Succeed(t, err)
		must.Succeed(t, os.WriteFile(filepath.Join(p.dir, "code"), nil, 0o600))
		places = append(places, p)
	}
	for _, p := range places {
		must.Succeed(t, c.keep(p))
	}
	if !isKept(t, c, "a") {
		t.Error("it is not kept")
	}
	if left, err := filepath.Glob(filepath.Join(c.dir, newPrefix+"*")); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestNoLinks: a link among the files is damage: what it leads to may be changed by others.
func TestNoLinks(t *testing.T) {
	c := codeCache{filepath.Join(t.TempDir(), "wasm"), maxCode}
	p := fill(t, c, "a", 1, time.Now())
	code, elsewhere := filepath.Join(p.final, "code"), filepath.Join(t.TempDir(), "code")
	must.Succeed(t, os.Rename(code, elsewhere))
	must.Succeed(t, os.Symlink(elsewhere, code))
	if isKept(t, c, "a") {
		t.Error("it is read")
	}
}

// TestCodeOfOthers: a folder that every user may write to is neither read nor written.
func TestCodeOfOthers(t *testing.T) {
	// Guarantee: compiled-private
	c := codeCache{filepath.Join(t.TempDir(), "wasm"), maxCode}
	fill(t, c, "a", 1, time.Now())
	must.Succeed(t, os.Chmod(c.dir, 0o777))
	if p, err := c.open([]byte("a")); err == nil || p.dir != "" || !strings.Contains(err.Error(), "every user") {
		t.Errorf("got %+v, %v", p, err)
	}
}

// TestReadOnlyCode: what an image has is used, although nothing can be written there.
func TestReadOnlyCode(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may write everywhere")
	}
	c := codeCache{filepath.Join(t.TempDir(), "wasm"), maxCode}
	p := fill(t, c, "a", 1, time.Now())
	for _, dir := range []string{p.final, c.dir} {
		must.Succeed(t, os.Chmod(dir, 0o500))
		defer func() { must.Report(t, os.Chmod(dir, 0o700)) }() //nolint:gosec // a folder
	}
	if p, err := c.open([]byte("a")); err != nil || !p.kept || c.keep(p) != nil {
		t.Errorf("got %+v, %v", p, err)
	}
	if p, err := c.open([]byte("b")); err == nil || p.dir != "" {
		t.Errorf("got %+v, %v", p, err)
	}
}
