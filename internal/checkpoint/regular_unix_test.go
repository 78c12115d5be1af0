//go:build unix

package checkpoint_test

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/test/must"
)

// TestNotAFile: a path that is no regular file is refused by name, and left unchanged; a link to a
// file is a file.
func TestNotAFile(t *testing.T) {
	// Guarantee: start-ends
	for what, make := range map[string]func(path string) error{
		"a named pipe": func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"a folder":     func(path string) error { return os.Mkdir(path, 0o700) },
		"a device":     func(path string) error { return os.Symlink("/dev/zero", path) },
	} {
		for _, name := range []string{"state.db", "state.db.lock"} {
			dir := t.TempDir()
			must.Succeed(t, make(filepath.Join(dir, name)))
			db, err := checkpoint.Open(checkpoint.Config{Path: filepath.Join(dir, "state.db")})
			if err == nil {
				t.Error(db.Close())
			}
			if want := name + " is " + what + ": remove it"; err == nil || !strings.Contains(err.Error(), want) || errors.Is(err, checkpoint.ErrCorrupt) {
				t.Errorf("%v, want %s", err, want)
			}
		}
	}
	path := statePath(t)
	open(t, path).Close()
	link := filepath.Join(t.TempDir(), "state.db")
	must.Succeed(t, os.Symlink(path, link))
	open(t, link)
}

// TestFallBackInUse: the loss of the last transaction is logged even if it is noticed while the
// file is in use.
func TestFallBackInUse(t *testing.T) {
	path, log := statePath(t), &bytes.Buffer{}
	db, err := checkpoint.Open(checkpoint.Config{Path: path, Log: slog.New(slog.NewTextHandler(log, nil))})
	must.Succeed(t, err)
	defer db.Close()
	cut := checkpoint.Cut{Routes: []checkpoint.RouteCut{{Name: "r", Rules: []checkpoint.RuleRecord{{Kind: 'l', Value: []byte("1")}}}}}
	write(t, db, cut)
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	must.Succeed(t, err)
	defer file.Close()
	// one of the meta pages
	if _, err := file.WriteAt(make([]byte, 64), 16); err != nil {
		t.Fatal(err)
	}
	if err := db.Write(checkpoint.Cut{Routes: []checkpoint.RouteCut{{}}}); err == nil {
		t.Fatal("a route without a name was written")
	}
	write(t, db, cut)
	if !strings.Contains(log.String(), "the last transaction of the state file is unreadable") {
		t.Errorf("the log:\n%s", log)
	}
}

// TestForeignFolder: a state folder in which another user can put a state file is refused with the
// remedy, and no file is made in it.
func TestForeignFolder(t *testing.T) {
	// Guarantee: files-private
	for _, tt := range []struct {
		name    string
		mode    os.FileMode
		owner   int // -1: the user of the test
		refused string
	}{
		{"own", 0o700, -1, ""},
		{"a volume of Kubernetes", 0o775 | os.ModeSetgid, -1, ""},
		{"for everybody", 0o777, -1, "chmod o-w"},
		{"for everybody, sticky", 0o777 | os.ModeSticky, -1, "name a folder in it, as"},
		{"of another user", 0o700, 4711, "belongs to the user 4711"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "state")
			must.Succeed(t, os.Mkdir(dir, 0o700))
			must.Succeed(t, os.Chmod(dir, tt.mode))
			if err := os.Chown(dir, tt.owner, -1); err != nil {
				t.Skipf("only root gives files away: %v", err)
			}
			db, err := checkpoint.Open(checkpoint.Config{Path: filepath.Join(dir, "state.db")})
			if tt.refused == "" {
				must.Succeed(t, err)
				must.Report(t, db.Close())
				return
			}
			must.Fail(t, err, tt.refused)
			if made, _ := os.ReadDir(dir); len(made) > 0 {
				t.Errorf("%v was made", made)
			}
		})
	}
}
