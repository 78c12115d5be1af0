//go:build unix

package folder_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/checkpoint/folder"
	"github.com/deltarouter/deltarouter/test/leaks"
	"github.com/deltarouter/deltarouter/test/must"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// A folder like /tmp must not be the state folder, and its rights must not be changed either.
func TestCheck(t *testing.T) {
	dir := t.TempDir()
	must.Succeed(t, folder.Check(dir))
	must.Succeed(t, os.Chmod(dir, 0o1777)) //nolint:gosec // as /tmp
	if err := folder.Check(dir); err == nil || !strings.Contains(err.Error(), "as "+filepath.Join(dir, "deltarouter")+",") {
		t.Errorf("got %v", err)
	}
	file := filepath.Join(dir, "file")
	must.Succeed(t, os.WriteFile(file, nil, 0o600))
	if err := folder.Check(file); err == nil || !strings.Contains(err.Error(), "is not a folder") {
		t.Errorf("got %v", err)
	}
}
