package checkpoint

import (
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"syscall"

	berrors "go.etcd.io/bbolt/errors"
)

// ErrFull is wrapped by the error of a write that found no room: the disk is full, or the file has reached Config.MaxSize.
var ErrFull = errors.New("no room for the state file")

// ErrCorrupt is wrapped by the error of a read that found something that was not written so.
var ErrCorrupt = errors.New("the state file is damaged")

// ErrClosed is returned after [DB.Close].
var ErrClosed = errors.New("the state file is closed")

// LockedError says that another router uses the state folder.
type LockedError struct {
	Path string // of the lock file
	PID  int    // of the holder; 0 if the lock file does not say
	Host string // of the holder: in containers each router may be process 1
}

// Error names the holder and the remedy.
func (e *LockedError) Error() string {
	holder := "another process"
	if e.PID != 0 {
		holder = fmt.Sprintf("process %d on %s", e.PID, e.Host)
	}
	return fmt.Sprintf("%s is held by %s: each router needs a state folder of its own (state.dir)", e.Path, holder)
}

// NewerError says that the state file was written by a newer version, in a format that this version cannot read. The file is left as
// it is.
type NewerError struct {
	Path   string
	Format int // of the file
}

// Error names the formats and the remedy.
func (e *NewerError) Error() string {
	return fmt.Sprintf("%s has format %d, this version reads up to %d: run the version that wrote it, or move the file away to start anew",
		e.Path, e.Format, Format)
}

func corruptf(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrCorrupt, fmt.Sprintf(format, args...))
}

// guard runs f and makes an error of a panic, also of a fault in the memory map (the file was cut short behind our back, or the disk
// cannot read it): bbolt checks with panics what it reads. Only faults in f's own goroutine are caught.
func guard(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = &panicError{p}
		}
	}()
	return f()
}

type panicError struct{ value any }

func (e *panicError) Error() string { return fmt.Sprintf("%v: %v", ErrCorrupt, e.value) }
func (e *panicError) Unwrap() error { return ErrCorrupt }

// full marks the errors that mean that there is no room.
func full(err error) error {
	switch {
	case errors.Is(err, berrors.ErrMaxSizeReached):
		return fmt.Errorf("%w: %w (raise state.maxSize)", ErrFull, err)
	case isOneOf(err, syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG):
		return fmt.Errorf("%w: %w", ErrFull, err)
	case errors.Is(err, berrors.ErrDatabaseNotOpen):
		return ErrClosed
	}
	return err
}

// isOneOf also looks at the text, because bbolt does not wrap the errors of growing its file.
func isOneOf(err error, codes ...syscall.Errno) bool {
	for _, code := range codes {
		if errors.Is(err, code) || err != nil && strings.HasSuffix(err.Error(), ": "+code.Error()) {
			return true
		}
	}
	return false
}
