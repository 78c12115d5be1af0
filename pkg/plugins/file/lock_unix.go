//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package file

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// openOwn opens the file of the sink, but no file that a symbolic link there points to: whoever may
// write to the folder could have the router write to any file of its own. It does not wait where a
// fifo was put there.
func openOwn(path string, flags int) (*os.File, error) {
	f, err := os.OpenFile(path, flags|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, mode)
	if errors.Is(err, syscall.ELOOP) {
		return nil, fmt.Errorf("%s is a symbolic link, which is not followed: name the file that it points to", path)
	}
	return f, err
}

// lock keeps other sinks from writing to the file, in this process and in others, until it is
// closed.
func lock(f *os.File) error {
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return errors.New("another sink, or another router, writes to " + f.Name())
		}
		return err
	}
	return nil
}
