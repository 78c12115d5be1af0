package child

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/deltarouter/deltarouter/internal/fileerr"
)

const (
	folderPrefix = "deltarouter-plugin-"
	// longestSocket is the shortest limit of any system for the path of a socket, in bytes.
	longestSocket = 103
	// socketName is the length of go-plugin's suffix: /plugin-dir<10 digits>/plugin<10 digits>.
	socketName = 40
	// sweepAge protects new folders, which may not be locked yet.
	sweepAge = time.Minute
)

// Folder is the private folder of one process, with its sockets, temporary files and working
// folder. Only the router's user may enter it.
type Folder struct {
	Path string
	lock *os.File // locked while the router runs
}

// NewFolder creates a folder, and removes those of killed routers.
func NewFolder() (*Folder, error) {
	base := os.TempDir()
	if n := len(base) + 1 + len(folderPrefix) + 10 + socketName; n > longestSocket {
		return nil, fmt.Errorf("the path of the temporary folder %s is too long for sockets: set TMPDIR to a shorter one", base)
	}
	sweep(base)
	path, err := os.MkdirTemp(base, folderPrefix+"*")
	if err != nil {
		return nil, fmt.Errorf("no folder can be created in %s: %w: set TMPDIR to a folder of this user", base, fileerr.Cause(err))
	}
	lock, err := os.OpenFile(filepath.Join(path, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err == nil {
		err = lockFile(lock)
	}
	if err != nil {
		_ = os.RemoveAll(path)
		return nil, fmt.Errorf("no file can be locked in %s: %w", path, fileerr.Cause(err))
	}
	return &Folder{path, lock}, nil
}

// Remove removes the folder.
func (f *Folder) Remove() error { return errors.Join(os.RemoveAll(f.Path), f.lock.Close()) }

// sweep removes the folders of ended routers, whose locks are free. Other users may share the
// temporary folder, and may create folders with such names and any content. So a folder is removed
// only if the router's user owns it and its lock.
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

// abandoned reports whether no router holds the lock of a folder. It opens no file outside the
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
