//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package file

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/deltarouter/deltarouter/internal/fileerr"
)

// openOwn opens the file of the sink. It does not follow a symbolic link at that path: otherwise a
// user with write access to the folder could make the router write to any of its files. It does not
// block on a fifo.
func openOwn(path string, flags int) (*os.File, error) {
	f, err := os.OpenFile(path, flags|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, mode)
	if errors.Is(err, syscall.ELOOP) {
		return nil, fmt.Errorf("%s is a symbolic link, which is not followed: name the file that it points to", path)
	}
	return f, err
}

// lock takes an exclusive lock on the file until the file is closed, against other sinks in this
// and other processes.
func lock(f *os.File) error {
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return errors.New("another sink, or another router, writes to " + f.Name())
		}
		return fmt.Errorf("%s cannot be locked: %w", f.Name(), fileerr.Cause(err))
	}
	return nil
}
