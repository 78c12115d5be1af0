package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

const (
	folderPrefix = "deltarouter-plugin-"
	// A socket's path has at most so many bytes, on the least generous systems.
	longestSocket = 103
	// What go-plugin adds: /plugin-dir<10 digits>/plugin<10 digits>.
	socketName = 40
	// A folder that is younger may be about to be locked.
	sweepAge = time.Minute
)

// folder is what one process has for itself and the router: its sockets, its temporary files, its working folder. Nobody but the router's
// user may enter it.
type folder struct {
	path string
	lock *os.File // is locked as long as the router lives
}

// newFolder makes a folder, and removes those that a router left which was killed.
func newFolder() (*folder, error) {
	base := os.TempDir()
	if n := len(base) + 1 + len(folderPrefix) + 10 + socketName; n > longestSocket {
		return nil, fmt.Errorf("the path of the temporary folder %s is too long for sockets: set TMPDIR to a shorter one", base)
	}
	sweep(base)
	path, err := os.MkdirTemp(base, folderPrefix+"*")
	if err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(filepath.Join(path, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err == nil {
		err = lockFile(lock)
	}
	if err != nil {
		_ = os.RemoveAll(path)
		return nil, err
	}
	return &folder{path, lock}, nil
}

func (f *folder) remove() error { return errors.Join(os.RemoveAll(f.path), f.lock.Close()) }

// sweep removes the folders whose router is gone: their locks are free.
func sweep(base string) {
	found, err := filepath.Glob(filepath.Join(base, folderPrefix+"*"))
	if err != nil {
		return
	}
	for _, path := range found {
		info, err := os.Lstat(path)
		if err != nil || !info.IsDir() || time.Since(info.ModTime()) < sweepAge {
			continue
		}
		lock, err := os.OpenFile(filepath.Join(path, "lock"), os.O_RDWR, 0)
		if err != nil {
			continue // another user's
		}
		if lockFile(lock) == nil {
			_ = os.RemoveAll(path)
		}
		_ = lock.Close()
	}
}
