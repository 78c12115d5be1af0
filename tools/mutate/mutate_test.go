package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestMutations shows that each mutation still applies and compiles, and that its guarantee exists.
func TestMutations(t *testing.T) {
	t.Chdir(filepath.Join("..", ".."))
	guarantees, err := os.ReadFile(filepath.Join("docs", "GUARANTEES.md"))
	if err != nil {
		t.Fatal(err)
	}
	for i, m := range mutations {
		overlay, err := m.overlay(t.TempDir(), i)
		if err != nil {
			t.Error(err)
			continue
		}
		build := exec.Command("go", "build", "-trimpath", "-tags=grpcnotrace", "-overlay="+overlay, "./"+filepath.Dir(m.file))
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", m.promise, err, out)
		}
		if !strings.Contains(string(guarantees), "| [^"+m.guarantee+"] |") {
			t.Errorf("%s: docs/GUARANTEES.md has no row %s", m.promise, m.guarantee)
		}
	}
	if len(mutations) < 10 {
		t.Errorf("only %d mutations", len(mutations))
	}
}
