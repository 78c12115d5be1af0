package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/deltarouter/deltarouter/internal/fileerr"
)

// maxInput is more than an API server accepts, in bytes.
const maxInput = 64 << 20

// ReadFile reads a file that is named on the command line; - is standard input.
func ReadFile(s Streams, path string) ([]byte, error) {
	if path == "-" {
		return io.ReadAll(io.LimitReader(s.In, maxInput))
	}
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	text, err := io.ReadAll(f)
	if err != nil {
		return nil, fmt.Errorf("%s cannot be read: %w", path, fileerr.Cause(err))
	}
	return text, nil
}

// Open opens a file that is named on the command line.
func Open(path string) (*os.File, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no file %s", path)
	}
	if err != nil {
		return nil, fmt.Errorf("%s cannot be read: %w", path, fileerr.Cause(err))
	}
	return f, nil
}
