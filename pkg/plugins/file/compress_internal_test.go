package file

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/deltarouter/deltarouter/test/must"
)

// TestInterrupted: a cancelled compression leaves everything unchanged.
func TestInterrupted(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "events")
	must.Succeed(t, os.WriteFile(path, []byte("{}\n"), 0o600))
	for _, kind := range []string{compressGzip, compressZstd} {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		c := compressor{cfg: sinkConfig{Path: path, Compress: kind}}
		if err := c.one(ctx, path); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", kind, err)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) != 1 || left[0].Name() != "events" {
			t.Errorf("%s: there are %v (%v)", kind, left, err)
		}
	}
}

// TestPrune: a file that exists with and without compression counts once, and a folder does not
// count.
func TestPrune(t *testing.T) {
	dir := t.TempDir()
	const first, second, third = "e-20260101T000000.000000001Z.l", "e-20260101T000000.000000002Z.l", "e-20260101T000000.000000003Z.l"
	for _, name := range []string{first, first + ".gz", second, second + ".zst", third + ".gz"} {
		must.Succeed(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	must.Succeed(t, os.Mkdir(filepath.Join(dir, "e-20260101T000000.000000000Z.l"), 0o700))
	check(t, dir, 3, []string{first, first + ".gz", second, second + ".zst", third + ".gz"})
	check(t, dir, 2, []string{second, second + ".zst", third + ".gz"})
	check(t, dir, 1, []string{third + ".gz"})
}

func check(t *testing.T, dir string, keep int, want []string) {
	t.Helper()
	must.Succeed(t, prune(filepath.Join(dir, "e.l"), keep))
	entries, err := os.ReadDir(dir)
	must.Succeed(t, err)
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
