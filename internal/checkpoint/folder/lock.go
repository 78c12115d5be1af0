package folder

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Wait is how long Open waits for the router before to let go of the file: a restart may overlap a
// little.
const Wait = time.Second

// Lock is the file beside the state file that a router holds while it uses the folder. The lock
// ends with the process; the file stays and names who holds it, or held it last: "pid host".
type Lock struct{ file *os.File }

// Acquire takes the lock of a folder, whose file has that path. It waits a second for the router
// before to let go. The error is a *LockedError if it does not.
func Acquire(path string) (*Lock, error) {
	if err := CheckRegular(path); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for deadline := time.Now().Add(Wait); ; {
		err := tryLock(file)
		if err == nil {
			break
		}
		if !errors.Is(err, errLocked) {
			_ = file.Close() // nothing was written
			return nil, fmt.Errorf("locking %s: %w", path, err)
		}
		if time.Now().After(deadline) {
			holder := readHolder(file, path)
			_ = file.Close() // nothing was written
			return nil, holder
		}
		<-time.After(20 * time.Millisecond)
	}
	l := &Lock{file}
	if err := l.sign(); err != nil {
		_ = file.Close() // the error that counts is there already
		return nil, fmt.Errorf("writing %s: %w", path, err)
	}
	return l, nil
}

func (l *Lock) sign() error {
	host, err := os.Hostname()
	if err != nil {
		host = "this host"
	}
	if err := l.file.Truncate(0); err != nil {
		return err
	}
	_, err = l.file.WriteAt(fmt.Appendf(nil, "%d %s\n", os.Getpid(), host), 0)
	return err
}

func readHolder(file *os.File, path string) *LockedError {
	text := make([]byte, 512)
	n, _ := file.ReadAt(text, 0) // shorter than asked for, and empty if it has not signed yet
	pid, host, _ := strings.Cut(strings.TrimSpace(string(text[:n])), " ")
	number, err := strconv.Atoi(pid)
	if err != nil || number < 0 {
		return &LockedError{Path: path}
	}
	return &LockedError{Path: path, PID: number, Host: host}
}

// Release lets go of the folder.
func (l *Lock) Release() error { return l.file.Close() }
