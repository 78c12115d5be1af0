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
	inside := "name a folder in it, as " + filepath.Join(dir, "deltarouter") + ", which the router makes"
	for mode, want := range map[os.FileMode]string{0o777 | os.ModeSticky: inside, 0o777: inside + ", or run chmod o-w " + dir} {
		must.Succeed(t, os.Chmod(dir, mode))
		if err := folder.Check(dir); err == nil || !strings.HasSuffix(err.Error(), ": "+want) {
			t.Errorf("%v: got %v", mode, err)
		}
	}
	file := filepath.Join(dir, "file")
	must.Succeed(t, os.WriteFile(file, nil, 0o600))
	if err := folder.Check(file); err == nil || !strings.Contains(err.Error(), "is not a folder") {
		t.Errorf("got %v", err)
	}
}
