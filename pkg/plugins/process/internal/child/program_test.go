//go:build unix

package child

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/test/must"
)

// TestNoExec: the error of a copy that the system does not execute names the remedy.
func TestNoExec(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "sub")
	must.Succeed(t, os.Mkdir(folder, 0o700))
	path := filepath.Join(folder, "program")
	// simulates a noexec mount
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o400); err != nil {
		t.Fatal(err)
	}
	err := New(&exec.Cmd{Path: path, Args: []string{path}}, folder, nil).Start(t.Context())
	if want := "permission denied: if " + filepath.Dir(folder) + " is mounted noexec, set TMPDIR to a folder that is not"; err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}
