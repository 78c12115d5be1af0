package file

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestPrune: a file that is there compressed and not compressed, for a moment, is one; a folder is none.
func TestPrune(t *testing.T) {
	dir := t.TempDir()
	const first, second, third = "e-20260101T000000.000000001Z.l", "e-20260101T000000.000000002Z.l", "e-20260101T000000.000000003Z.l"
	for _, name := range []string{first, first + ".gz", second, second + ".zst", third + ".gz"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "e-20260101T000000.000000000Z.l"), 0o700); err != nil {
		t.Fatal(err)
	}
	check(t, dir, 3, []string{first, first + ".gz", second, second + ".zst", third + ".gz"})
	check(t, dir, 2, []string{second, second + ".zst", third + ".gz"})
	check(t, dir, 1, []string{third + ".gz"})
}

func check(t *testing.T, dir string, keep int, want []string) {
	t.Helper()
	if err := prune(filepath.Join(dir, "e.l"), keep); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, e := range entries {
		if !e.IsDir() {
			left = append(left, e.Name())
		}
	}
	if !slices.Equal(left, want) || len(entries) != len(want)+1 {
		t.Errorf("of %d to keep there are %v, want %v", keep, left, want)
	}
}
