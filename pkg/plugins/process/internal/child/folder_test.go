//go:build unix

package child

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/test/must"
)

// TestSweep: the folder of a killed router is removed. A folder with such a name that another user
// may have created stays, and the targets of its links are not opened.
func TestSweep(t *testing.T) {
	// Guarantee: files-private
	base := t.TempDir()
	outside := filepath.Join(t.TempDir(), "lock")
	writeFile(t, outside)

	left := folderIn(t, base, "left")
	writeFile(t, filepath.Join(left, "lock"))

	linked := folderIn(t, base, "linked")
	must.Succeed(t, os.Symlink(outside, filepath.Join(linked, "lock")))
	inner := folderIn(t, base, "inner")
	writeFile(t, filepath.Join(inner, "other"))
	must.Succeed(t, os.Symlink("other", filepath.Join(inner, "lock")))
	foreign := folderIn(t, base, "foreign")
	writeFile(t, filepath.Join(foreign, "lock"))
	root := os.Chown(foreign, 4711, -1) == nil

	old := time.Now().Add(-2 * sweepAge)
	for _, dir := range []string{left, linked, inner, foreign} {
		must.Succeed(t, os.Chtimes(dir, old, old))
	}
	sweep(base)

	if _, err := os.Lstat(left); err == nil {
		t.Error("the folder that a killed router left is still there")
	}
	for _, dir := range []string{linked, inner} {
		if _, err := os.Lstat(dir); err != nil {
			t.Errorf("a folder whose lock is a link was removed: %v", err)
		}
	}
	if _, err := os.Lstat(foreign); root && err != nil {
		t.Errorf("a folder of another user was removed: %v", err)
	}
}

func folderIn(t *testing.T, base, name string) (path string) {
	t.Helper()
	path = filepath.Join(base, folderPrefix+name)
	must.Succeed(t, os.Mkdir(path, 0o700))
	return path
}

func writeFile(t *testing.T, path string) {
	t.Helper()
	must.Succeed(t, os.WriteFile(path, nil, 0o600))
}
