//go:build unix

package files_test

import (
	"path/filepath"
	"syscall"
	"testing"

	"github.com/deltarouter/deltarouter/internal/config/files"
	"github.com/deltarouter/deltarouter/test/must"
)

// TestPipe: a pipe in place of an included file is a mistake. It must not block the router.
func TestPipe(t *testing.T) {
	dir := t.TempDir()
	must.Succeed(t, syscall.Mkfifo(filepath.Join(dir, "routes.yaml"), 0o600))
	if names, err := files.Match(filepath.Join(dir, "routes.yaml")); err == nil || len(names) > 0 {
		t.Errorf("got %q, %v", names, err)
	}
	if _, err := files.ReadIn(dir, "routes.yaml"); err == nil {
		t.Error("a pipe was read")
	}
}
