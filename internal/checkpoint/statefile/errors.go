package statefile

import (
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"syscall"

	berrors "go.etcd.io/bbolt/errors"

	"github.com/deltarouter/deltarouter/internal/checkpoint/value"
)

// ErrFull is wrapped by the error of a write that found no room: the disk is full, or the file has
// reached [Config].MaxSize.
var ErrFull = errors.New("no room for the state file")

// ErrClosed is returned after [File.Close].
var ErrClosed = errors.New("the state file is closed")

// NewerError says that the state file was written by a newer version, in a format that this version
// cannot read. The file is left as it is.
type NewerError struct {
	Path   string
	Format int // of the file
}

// Error names the formats and the remedy.
func (e *NewerError) Error() string {
	return fmt.Sprintf("%s has format %d, this version reads up to %d: run the version that wrote it, or move the file away to start anew",
		e.Path, e.Format, Format)
}

// Guard runs f and makes an error of a panic, also of a fault in the memory map (the file was cut
// short behind our back, or the disk cannot read it): bbolt checks with panics what it reads. Only
// faults in f's own goroutine are caught.
func Guard(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = &panicError{p}
		}
	}()
	return f()
}

type panicError struct{ cause any }

func (e *panicError) Error() string { return fmt.Sprintf("%v: %v", value.ErrCorrupt, e.cause) }
func (e *panicError) Unwrap() error { return value.ErrCorrupt }

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
