package fileerr_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/deltarouter/deltarouter/internal/fileerr"
	"github.com/deltarouter/deltarouter/test/must"
)

// TestExplain: the errors of package os itself, not of imitations.
func TestExplain(t *testing.T) {
	t.Chdir(t.TempDir())
	must.Succeed(t, os.WriteFile("file", nil, 0o600))
	must.Succeed(t, os.MkdirAll(filepath.Join("folder", "inner"), 0o700))
	must.Succeed(t, os.Symlink("loop", "loop"))
	for _, c := range []struct {
		name    string
		do      func() error
		explain string
		cause   string
		is      error
	}{
		{"no file", open("none"), "none cannot be opened: there is no such file or folder", "there is no such file or folder", fs.ErrNotExist},
		{"below a file", open("file/x"), "file/x cannot be opened: a part of its path is a file, not a folder", "a part of its path is a file, not a folder", syscall.ENOTDIR},
		{"a loop", open("loop"), "loop cannot be opened: its symbolic links form a loop", "its symbolic links form a loop", syscall.ELOOP},
		{"a folder", read("folder"), "folder cannot be read: it is a folder, not a file", "it is a folder, not a file", syscall.EISDIR},
		{"no state", func() error { _, err := os.Stat("none"); return err }, "none cannot be read: there is no such file or folder", "there is no such file or folder", fs.ErrNotExist},
		{"a folder in place of it", func() error { return os.Mkdir("file", 0o700) }, "file cannot be created: it exists already", "it exists already", fs.ErrExist},
		{"a folder with files", func() error { return os.Remove("folder") }, "folder cannot be removed: the folder is not empty", "the folder is not empty", syscall.ENOTEMPTY},
		{"no name", func() error { return os.Rename("none", "other") }, "none cannot be renamed to other: there is no such file or folder", "there is no such file or folder", fs.ErrNotExist},
		{"no mode", func() error { return os.Chmod("none", 0) }, "none cannot be changed: there is no such file or folder", "there is no such file or folder", fs.ErrNotExist},
		{"no permission", of("open", syscall.EACCES), "x cannot be opened: this user has no permission", "this user has no permission", fs.ErrPermission},
		{"a full disk", of("write", syscall.ENOSPC), "x cannot be written: the disk is full", "the disk is full", syscall.ENOSPC},
		{"a number without a text", of("sync", syscall.EBADMSG), `x cannot be written: the system reports "bad message"`, `the system reports "bad message"`, syscall.EBADMSG},
		{"our own", func() error { return errOwn }, "own", "own", errOwn},
		{"a joined one", func() error { return errors.Join(open("none")(), errOwn) }, "none cannot be opened: there is no such file or folder", "there is no such file or folder", errOwn},
		{"one of before", func() error { return fmt.Errorf("around: %w", fileerr.Cause(open("none")())) }, "around: there is no such file or folder", "around: there is no such file or folder", fs.ErrNotExist},
		{"none", func() error { return nil }, "<nil>", "<nil>", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := c.do()
			for want, got := range map[string]error{c.explain: fileerr.Explain(err), c.cause: fileerr.Cause(err)} {
				if text := fmt.Sprint(got); text != want || !errors.Is(got, c.is) {
					t.Errorf("%v became %q, want %q", err, text, want)
				}
			}
		})
	}
}

var errOwn = errors.New("own")

func open(name string) func() error {
	return func() error { _, err := os.Open(name); return err }
}

func read(name string) func() error {
	return func() error { _, err := os.ReadFile(name); return err }
}

func of(op string, number syscall.Errno) func() error {
	return func() error { return &fs.PathError{Op: op, Path: "x", Err: number} }
}
