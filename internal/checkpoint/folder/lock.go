package folder

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/deltarouter/deltarouter/internal/fileerr"
)

// Wait is the time that Open waits for the previous router to release the file: two processes may
// overlap during a restart.
const Wait = time.Second

// Lock is the file beside the state file that a router locks while it uses the folder. The lock
// ends with the process. The file stays, with the present or last holder: "pid host".
type Lock struct{ file *os.File }

// Acquire takes the lock of a folder, which is the file at path. It waits a second for the previous
// router to release it, and then returns a *LockedError.
func Acquire(path string) (*Lock, error) {
	return acquire(path, os.O_RDWR|os.O_CREATE)
}

// AcquireExisting is Acquire for a reader of the folder. It makes no lock file. It returns nil if
// there is none, as beside a backup, or if this user may not write to it.
func AcquireExisting(path string) (*Lock, error) {
	l, err := acquire(path, os.O_RDWR)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
		return nil, nil //nolint:nilnil // as promised
	}
	return l, err
}

func acquire(path string, mode int) (*Lock, error) {
	if err := CheckRegular(path); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(path, mode, 0o600)
	if err != nil {
		return nil, fileerr.Explain(err)
	}
	for deadline := time.Now().Add(Wait); ; {
		err := tryLock(file)
		if err == nil {
			break
		}
		if !errors.Is(err, errLocked) {
			_ = file.Close() // nothing was written
			return nil, fmt.Errorf("%s cannot be locked: %w", path, fileerr.Cause(err))
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
		_ = file.Close() // another error is returned
		return nil, fmt.Errorf("%s cannot be written: %w", path, fileerr.Cause(err))
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
	// shorter than requested, and empty if the holder has not written it yet
	n, _ := file.ReadAt(text, 0)
	pid, host, _ := strings.Cut(strings.TrimSpace(string(text[:n])), " ")
	number, err := strconv.Atoi(pid)
	if err != nil || number < 0 {
		return &LockedError{Path: path}
	}
	return &LockedError{Path: path, PID: number, Host: host}
}

// Release releases the folder. A nil Lock has none.
func (l *Lock) Release() error {
	if l == nil {
		return nil
	}
	return l.file.Close()
}
