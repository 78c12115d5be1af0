package child

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/deltarouter/deltarouter/internal/fileerr"
)

// ErrAnother is the error of a program with another SHA-256 than configured.
var ErrAnother = errors.New("the program differs from sha256")

// Program is a program to execute.
//
// The file could be replaced between the check of its hash and its execution. So a copy is
// executed. On Linux it is a sealed copy in memory, made once and used for each start, independent
// of the file. Elsewhere it is a copy in the private folder of the process, made for each start.
type Program struct {
	file   string
	sum    string
	sealed *os.File // nil: each start makes a copy
}

// Copied returns a program that is copied to the folder at each start.
func Copied(file, sum string) *Program { return &Program{file: file, sum: sum} }

// Load copies a program and checks its hash.
func Load(file, sum string) (*Program, error) {
	p := Copied(file, sum)
	sealed, err := seal(filepath.Base(file), p.copyTo)
	if errors.Is(err, errors.ErrUnsupported) {
		err = p.copyTo(io.Discard) // each start copies it; report a mistake now
	}
	if err != nil {
		return nil, err
	}
	p.sealed = sealed
	return p, nil
}

// copyTo copies the program. The error is ErrAnother if the hash differs.
func (p *Program) copyTo(to io.Writer) error {
	from, err := os.Open(p.file)
	if err != nil {
		return fmt.Errorf("%s cannot be read: %w", p.file, fileerr.Cause(err))
	}
	defer from.Close()
	info, err := from.Stat()
	if err != nil {
		return fmt.Errorf("%s cannot be read: %w", p.file, fileerr.Cause(err))
	}
	if !info.Mode().IsRegular() { // a device may be endless
		return fmt.Errorf("%s is not a file", p.file)
	}
	sum := sha256.New()
	if _, err := io.Copy(to, io.TeeReader(from, sum)); err != nil {
		return fmt.Errorf("%s cannot be copied: %w", p.file, fileerr.Cause(err))
	}
	if is := hex.EncodeToString(sum.Sum(nil)); !strings.EqualFold(is, p.sum) {
		return fmt.Errorf("%s is %w: %s", p.file, ErrAnother, is)
	}
	return nil
}

// Prepare returns the path to execute, and the files that the process must inherit from descriptor
// 3 on.
func (p *Program) Prepare(folder string) (path string, files []*os.File, err error) {
	if p.sealed != nil {
		return "/proc/self/fd/3", []*os.File{p.sealed}, nil
	}
	path = filepath.Join(folder, "program")
	to, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o500) //nolint:gosec // it is a program
	if err != nil {
		return "", nil, fileerr.Explain(err)
	}
	return path, nil, errors.Join(p.copyTo(to), to.Close())
}

// Close frees the copy in memory, if there is one.
func (p *Program) Close() error {
	if p.sealed == nil {
		return nil
	}
	return p.sealed.Close()
}
