// Package folder guards the folder of the state file: it checks the owner and that the files are
// regular files, and takes the lock by which one router owns the folder.
package folder

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/deltarouter/deltarouter/internal/fileerr"
)

// CheckRegular refuses a path that exists and is not a regular file: opening a named pipe may block
// for ever, and opening a device may have side effects.
func CheckRegular(path string) error {
	info, err := os.Stat(path)
	if err != nil || info.Mode().IsRegular() {
		return nil //nolint:nilerr // opening it reports the error
	}
	what := "not a regular file"
	switch mode := info.Mode(); {
	case mode.IsDir():
		what = "a folder"
	case mode&fs.ModeNamedPipe != 0:
		what = "a named pipe"
	case mode&fs.ModeDevice != 0:
		what = "a device"
	case mode&fs.ModeSocket != 0:
		what = "a socket"
	}
	return fmt.Errorf("%s is %s: remove it, or name another folder", path, what)
}

// Sync makes the names of the files in a folder durable.
func Sync(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return fileerr.Explain(err)
	}
	return fileerr.Explain(errors.Join(dir.Sync(), dir.Close()))
}

// LockedError says that another router uses the state folder.
type LockedError struct {
	Path string // of the lock file
	PID  int    // of the holder; 0 if the lock file does not say
	Host string // of the holder: in containers each router may be process 1
}

// Error names the holder and the remedy.
func (e *LockedError) Error() string {
	return fmt.Sprintf("%s is held by %s: each router needs a state folder of its own (state.dir)", e.Path, e.Holder())
}

// Holder describes the process that has the lock.
func (e *LockedError) Holder() string {
	if e.PID == 0 {
		return "another process"
	}
	return fmt.Sprintf("process %d on %s", e.PID, e.Host)
}
