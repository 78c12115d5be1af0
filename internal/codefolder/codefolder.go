// Package codefolder chooses the folder in which compiled modules are kept from one process to the
// next. Their machine code runs with the rights of the router, outside of the sandbox of modules.
// So the folder must be one that no other user can change or replace.
package codefolder

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/deltarouter/deltarouter/internal/fileerr"
)

// None is the name of no folder: compiled modules are kept in memory only.
const None = "none"

// Choose returns the folder for compiled modules: the named one, or else that of the user, so that
// all programs of the user on a machine compile a module once. It is made if it is missing. The
// result is [None] if named is, and empty if the user has no folder that can be written, as in a
// container. The error is the reason why a folder is refused; the result is then None if it was
// named, and otherwise empty.
func Choose(named string) (string, error) {
	switch named {
	case None:
		return None, nil
	case "":
		cache, err := os.UserCacheDir()
		if err != nil {
			return "", nil //nolint:nilerr // a user without home
		}
		return ofUser(filepath.Join(cache, "deltarouter"))
	}
	err := os.MkdirAll(named, 0o700)
	if err == nil {
		err = Check(named)
	}
	if err != nil {
		return None, fileerr.Explain(err)
	}
	return named, nil
}

// ofUser makes and checks the folder of the user. The folders above it may be those of another
// user, as with sudo: then it makes nothing there.
func ofUser(dir string) (string, error) {
	existing := filepath.Dir(dir)
	for parent := filepath.Dir(existing); missing(existing) && parent != existing; parent = filepath.Dir(parent) {
		existing = parent
	}
	if err := checkAbove(existing); err != nil {
		return "", err
	}
	if os.MkdirAll(dir, 0o700) != nil {
		return "", nil
	}
	target, err := filepath.EvalSymlinks(dir)
	if err == nil {
		err = errors.Join(checkAbove(filepath.Dir(target)), Check(dir))
	}
	if err != nil {
		return "", err
	}
	return dir, nil
}

func missing(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, fs.ErrNotExist)
}

// checkAbove returns the reason why another user could replace a folder in this one.
func checkAbove(dir string) error {
	for at := filepath.Clean(dir); ; at = filepath.Dir(at) {
		if err := check(at, true); err != nil {
			return err
		}
		if at == filepath.Dir(at) {
			return nil
		}
	}
}

// Check returns the reason why another user could change the content of a folder. It does not look
// at the folders above it, because the one who names a folder answers for them: a volume of the
// kind emptyDir is writable for every user of the pod.
func Check(dir string) error { return check(dir, false) }

func check(dir string, above bool) error {
	info, err := os.Stat(dir)
	switch {
	case err != nil:
		return fileerr.Explain(err)
	case !info.IsDir():
		return fmt.Errorf("%s is not a folder", dir)
	}
	return checkMode(dir, info, above)
}
