package file

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestInterrupted: a compression that is called off leaves everything as it was.
func TestInterrupted(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "events")
	if err := os.WriteFile(path, []byte("{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{compressGzip, compressZstd} {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		c := compressor{cfg: Config{Path: path, Compress: kind}}
		if err := c.one(ctx, path); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", kind, err)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) != 1 || left[0].Name() != "events" {
			t.Errorf("%s: there are %v (%v)", kind, left, err)
		}
	}
}
