//go:build unix

package child

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/deltarouter/deltarouter/test/must"
)

// TestNotStarted: the error of a copy that the system does not execute names the remedy.
func TestNotStarted(t *testing.T) {
	base := t.TempDir()
	folder := filepath.Join(base, "sub")
	must.Succeed(t, os.Mkdir(folder, 0o700))
	for _, c := range []struct {
		name string
		text string
		mode fs.FileMode
		want string
	}{
		// the mode has the effect of a noexec mount
		{"noexec", "#!/bin/sh\n", 0o400, "this user has no permission: if " + base + " is mounted noexec, set TMPDIR to a folder that is not"},
		{"no interpreter", "#!/none/sh\n", 0o700, "there is no such file or folder: the interpreter or the dynamic linker that it needs may be missing"},
		{"text", "text\n", 0o700, "it is no program for this machine"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(folder, c.name)
			must.Succeed(t, os.WriteFile(path, []byte(c.text), c.mode))
			err := New(&exec.Cmd{Path: path, Args: []string{path}}, folder, nil).Start(t.Context())
			must.Fail(t, err, "it cannot be started: "+c.want)
		})
	}
}
