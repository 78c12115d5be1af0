//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package file

import (
	"errors"
	"os"
	"syscall"
)

// lock keeps other sinks from writing to the file, in this process and in others, until it is closed.
func lock(f *os.File) error {
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return errors.New("another sink, or another router, writes to " + f.Name())
		}
		return err
	}
	return nil
}
