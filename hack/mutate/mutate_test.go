package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestMutations shows that each mutation still applies, and that its guarantee exists.
func TestMutations(t *testing.T) {
	t.Chdir(filepath.Join("..", ".."))
	guarantees, err := os.ReadFile(filepath.Join("docs", "GUARANTEES.md"))
	if err != nil {
		t.Fatal(err)
	}
	for i, m := range mutations {
		if _, err := m.overlay(t.TempDir(), i); err != nil {
			t.Error(err)
		}
		if !strings.Contains(string(guarantees), "| [^"+m.guarantee+"] |") {
			t.Errorf("%s: docs/GUARANTEES.md has no row %s", m.promise, m.guarantee)
		}
	}
	if len(mutations) < 10 {
		t.Errorf("only %d mutations", len(mutations))
	}
}
