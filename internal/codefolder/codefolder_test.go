//go:build unix

package codefolder_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/codefolder"
	"github.com/deltarouter/deltarouter/test/leaks"
	"github.com/deltarouter/deltarouter/test/must"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// stranger is a user and a group that the tests do not run as.
const stranger = 54321

// home makes an empty cache folder of the user.
func home(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", dir)
	t.Setenv("HOME", dir)
	return dir
}

// chosen returns the chosen folder, and the text of the error.
func chosen(named string) (dir, reason string) {
	dir, err := codefolder.Choose(named)
	if err != nil {
		reason = err.Error()
	}
	return dir, reason
}

// TestOfUser: without a name the folder is the user's, which is made for this user alone.
func TestOfUser(t *testing.T) {
	want := filepath.Join(home(t), "missing", "deltarouter")
	t.Setenv("XDG_CACHE_HOME", filepath.Dir(want))
	for range 2 { // the second time it exists
		if dir, reason := chosen(""); dir != want || reason != "" {
			t.Fatalf("got %q, %s", dir, reason)
		}
	}
	info, err := os.Stat(want)
	must.Succeed(t, err)
	if info.Mode().Perm() != 0o700 {
		t.Errorf("it has the mode %v", info.Mode())
	}
}

// TestNone: without a folder that can be written, and where none is wished, there is no error.
func TestNone(t *testing.T) {
	dir := home(t)
	if got, reason := chosen(codefolder.None); got != codefolder.None || reason != "" {
		t.Errorf("got %q, %s", got, reason)
	}
	t.Setenv("XDG_CACHE_HOME", "")
	t.Setenv("HOME", "")
	if got, reason := chosen(""); got != "" || reason != "" {
		t.Errorf("without home got %q, %s", got, reason)
	}
	file := filepath.Join(dir, "file")
	must.Succeed(t, os.WriteFile(file, nil, 0o600))
	if got, reason := chosen(filepath.Join(file, "x")); got != codefolder.None || reason == "" {
		t.Errorf("below a file got %q, %s", got, reason)
	}
	if got, reason := chosen(file); got != codefolder.None || reason == "" {
		t.Errorf("a file itself: got %q, %s", got, reason)
	}
}

// TestRefused: a folder that another user can change or replace is refused, with a reason.
func TestRefused(t *testing.T) {
	// Guarantee: compiled-private
	for name, test := range map[string]struct {
		harm func(cache, folder string) error
		want string
		root bool // only root can do that
		user bool // it matters for the folder of the user only
	}{
		"every user writes":       {func(_, dir string) error { return os.Chmod(dir, 0o707) }, "every user of this machine may write", false, false},
		"every user, sticky":      {func(_, dir string) error { return os.Chmod(dir, 0o777|fs.ModeSticky) }, "every user of this machine may write", false, false},
		"every user writes above": {func(cache, _ string) error { return os.Chmod(cache, 0o777) }, "every user of this machine may write", false, true},
		"another owner":           {func(_, dir string) error { return os.Chown(dir, stranger, -1) }, "belongs to the user 54321", true, false},
		"another owner above":     {func(cache, _ string) error { return os.Chown(cache, stranger, -1) }, "belongs to the user 54321", true, true},
		"a group writes": {func(_, dir string) error {
			if err := os.Chown(dir, -1, stranger); err != nil {
				return err
			}
			return os.Chmod(dir, 0o770)
		}, "the group 54321 may write", true, false},
		"a link to the folder of another": {func(cache, dir string) error {
			theirs := filepath.Join(cache, "theirs")
			if err := os.Mkdir(theirs, 0o700); err != nil {
				return err
			}
			if err := os.Chown(theirs, stranger, -1); err != nil {
				return err
			}
			if err := os.Remove(dir); err != nil {
				return err
			}
			return os.Symlink(theirs, dir)
		}, "belongs to the user 54321", true, false},
		"a link to a folder in that of another": {func(cache, dir string) error {
			ours := filepath.Join(cache, "theirs", "ours")
			if err := os.MkdirAll(ours, 0o700); err != nil {
				return err
			}
			if err := os.Chown(filepath.Dir(ours), stranger, -1); err != nil {
				return err
			}
			if err := os.Remove(dir); err != nil {
				return err
			}
			return os.Symlink(ours, dir)
		}, "belongs to the user 54321", true, true},
	} {
		t.Run(name, func(t *testing.T) {
			if test.root && os.Geteuid() != 0 {
				t.Skip("only root can give files away")
			}
			cache := home(t)
			dir := filepath.Join(cache, "deltarouter")
			must.Succeed(t, os.Mkdir(dir, 0o700))
			must.Succeed(t, test.harm(cache, dir))
			if got, reason := chosen(""); got != "" || !strings.Contains(reason, test.want) {
				t.Errorf("that of the user: got %q, %s", got, reason)
			}
			got, reason := chosen(dir)
			if test.user && (got != dir || reason != "") || !test.user && (got != codefolder.None || !strings.Contains(reason, test.want)) {
				t.Errorf("a named one: got %q, %s", got, reason)
			}
		})
	}
}

// TestNothingMade: in a folder of another user nothing is made, as with sudo and the user's HOME.
func TestNothingMade(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
	cache := home(t)
	must.Succeed(t, os.Chown(cache, stranger, -1))
	t.Setenv("XDG_CACHE_HOME", filepath.Join(cache, ".cache"))
	if got, reason := chosen(""); got != "" || !strings.Contains(reason, "belongs to the user 54321") {
		t.Errorf("got %q, %s", got, reason)
	}
	if entries, err := os.ReadDir(cache); err != nil || len(entries) > 0 {
		t.Errorf("%v was made, %v", entries, err)
	}
}

// TestOwnGroup: the folder may be writable for a group that has the number of the user.
func TestOwnGroup(t *testing.T) {
	dir := filepath.Join(home(t), "deltarouter")
	must.Succeed(t, os.Mkdir(dir, 0o700))
	if err := os.Chown(dir, -1, os.Geteuid()); err != nil {
		t.Skip("the user has no group of the same number")
	}
	must.Succeed(t, os.Chmod(dir, 0o770))
	if got, reason := chosen(""); got != dir || reason != "" {
		t.Errorf("got %q, %s", got, reason)
	}
}
