// Package fileerr words the errors of files, so that a message names the file, the cause and a
// remedy: the texts of the operating system name a system call and a code.
package fileerr

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// Cause returns why an operation on a file failed, without the file and the operation, which the
// message around it names. It returns an error unchanged if it is not of the operating system, or
// if it was worded before. The result wraps err.
func Cause(err error) error {
	if isWorded(err) {
		return err
	}
	for _, r := range reasons {
		if errors.Is(err, r.of) {
			return &worded{r.text, err}
		}
	}
	if number := syscall.Errno(0); errors.As(err, &number) {
		return &worded{fmt.Sprintf("the system reports %q", number.Error()), err}
	}
	return err
}

// Explain returns an error with the file, the operation that failed, and the [Cause]. It returns an
// error unchanged if it is not about a file, or if it was worded before. The result wraps err.
func Explain(err error) error {
	if isWorded(err) {
		return err
	}
	var one *fs.PathError
	var two *os.LinkError
	switch {
	case errors.As(err, &one):
		return &worded{fmt.Sprintf("%s cannot be %s: %v", one.Path, done(one.Op), Cause(one)), err}
	case errors.As(err, &two):
		return &worded{fmt.Sprintf("%s cannot be renamed to %s: %v", two.Old, two.New, Cause(two)), err}
	}
	return err
}

// worded is an error with another text.
type worded struct {
	text string
	err  error
}

func (w *worded) Error() string { return w.text }
func (w *worded) Unwrap() error { return w.err }

func isWorded(err error) bool {
	var w *worded
	return errors.As(err, &w)
}

var reasons = []struct {
	of   error
	text string
}{
	{syscall.ENOTDIR, "a part of its path is a file, not a folder"},
	{syscall.EISDIR, "it is a folder, not a file"},
	{syscall.ENOTEMPTY, "the folder is not empty"},
	{syscall.ENOSPC, "the disk is full"},
	{syscall.EFBIG, "it would exceed the largest size of a file: raise the limit (ulimit -f)"},
	{syscall.EDQUOT, "the disk quota of this user is exceeded"},
	{syscall.EROFS, "its file system is read-only"},
	{syscall.ELOOP, "its symbolic links form a loop"},
	{syscall.ENAMETOOLONG, "its name is too long"},
	{syscall.EMFILE, "this process has too many open files: raise the limit (ulimit -n)"},
	{syscall.ENOEXEC, "it is no program for this machine"},
	{syscall.EIO, "the disk reports an input/output error"},
	{fs.ErrNotExist, "there is no such file or folder"},
	{fs.ErrExist, "it exists already"},
	{fs.ErrPermission, "this user has no permission"},
}

// done returns the participle of the operation of a [fs.PathError].
func done(op string) string {
	switch op {
	case "mkdir", "mkdirtemp", "createtemp":
		return "created"
	case "unlink", "remove", "unlinkat", "RemoveAll", "rmdir":
		return "removed"
	case "write", "truncate", "sync":
		return "written"
	case "chmod", "chtimes":
		return "changed"
	case "open":
		return "opened"
	}
	return "read"
}
