package statefile

import (
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"syscall"

	berrors "go.etcd.io/bbolt/errors"

	"github.com/deltarouter/deltarouter/internal/fileerr"
)

// ErrFull is wrapped by the error of a write without enough room: the disk is full, or the file has
// reached [Config].MaxSize.
var ErrFull = errors.New("no room for the state file")

// ErrClosed is returned after [File.Close].
var ErrClosed = errors.New("the state file is closed")

// NewerError says that a newer version wrote the state file in a format that this version cannot
// read. The file is left unchanged.
type NewerError struct {
	Path   string
	Format int    // of the file
	Copy   string // of the file in a format that this version reads; empty: there is none
}

// Error names the formats and the remedy.
func (e *NewerError) Error() string {
	restore := "restore a backup that this version or an older one made"
	if e.Copy != "" {
		restore = "restore " + e.Copy + ", the copy from before the upgrade"
	}
	return fmt.Sprintf("%s has format %d, which a newer version wrote, and this version reads formats 1 to %d: run the newer version, %s, or move the file away to start with an empty state",
		e.Path, e.Format, Format, restore)
}

// named adds the path to the error of a verification. The error of a newer format has it, and gets
// the copy to go back to.
func named(path string, err error) error {
	var newer *NewerError
	if errors.As(err, &newer) {
		newer.Copy = olderCopy(path)
		return newer
	}
	return fmt.Errorf("%s: %w", path, fileerr.Cause(err))
}

// Guard runs f and turns a panic into an error, including a fault in the memory map (another
// process truncated the file, or the disk cannot read it): bbolt panics if a check of its data
// fails. Only faults in f's own goroutine are caught.
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

func (e *panicError) Error() string { return fmt.Sprintf("%v: %v", ErrCorrupt, e.cause) }
func (e *panicError) Unwrap() error { return ErrCorrupt }

// full marks the errors that mean a lack of room.
func full(err error) error {
	switch {
	case errors.Is(err, berrors.ErrMaxSizeReached):
		return fmt.Errorf("%w: %w (raise state.maxSize)", ErrFull, err)
	case isOneOf(err, syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG):
		return fmt.Errorf("%w: %w", ErrFull, fileerr.Cause(err))
	case errors.Is(err, berrors.ErrDatabaseNotOpen):
		return ErrClosed
	}
	return fileerr.Explain(err)
}

// isOneOf also compares the text, because bbolt does not wrap the errors of growing its file.
func isOneOf(err error, codes ...syscall.Errno) bool {
	for _, code := range codes {
		if errors.Is(err, code) || err != nil && strings.HasSuffix(err.Error(), ": "+code.Error()) {
			return true
		}
	}
	return false
}
