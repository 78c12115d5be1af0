package child

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

// Folder is what one process has for itself and the router: its sockets, its temporary files, its
// working folder. Nobody but the router's user may enter it.
type Folder struct {
	Path string
	lock *os.File // is locked as long as the router lives
}

// NewFolder makes a folder, and removes those that a router left which was killed.
func NewFolder() (*Folder, error) {
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
	return &Folder{path, lock}, nil
}

// Remove removes the folder.
func (f *Folder) Remove() error { return errors.Join(os.RemoveAll(f.Path), f.lock.Close()) }

// sweep removes the folders whose router is gone: their locks are free. The temporary folder may be
// shared with other users, who can make folders of that name with anything in them: a folder counts
// only if it and its lock are the router's own.
func sweep(base string) {
	found, err := filepath.Glob(filepath.Join(base, folderPrefix+"*"))
	if err != nil {
		return
	}
	for _, path := range found {
		info, err := os.Lstat(path)
		if err != nil || !info.IsDir() || !ownedByUs(info) || time.Since(info.ModTime()) < sweepAge {
			continue
		}
		if abandoned(path) {
			_ = os.RemoveAll(path)
		}
	}
}

// abandoned reports whether no router holds the lock of a folder. It opens nothing outside of the
// folder.
func abandoned(path string) bool {
	root, err := os.OpenRoot(path)
	if err != nil {
		return false
	}
	defer func() { _ = root.Close() }()
	info, err := root.Lstat("lock")
	if err != nil || !info.Mode().IsRegular() || !ownedByUs(info) {
		return false
	}
	lock, err := root.OpenFile("lock", os.O_RDWR, 0)
	if err != nil {
		return false
	}
	defer func() { _ = lock.Close() }()
	return lockFile(lock) == nil
}
