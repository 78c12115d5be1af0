package process

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// errAnother: the program is not what the configuration names.
var errAnother = errors.New("another program than sha256 says")

// program is what is executed.
//
// Between hashing a file and executing it, somebody could put another in its place. So what is executed is a copy: on Linux one in memory
// that nobody can write to any more, made once and used for each start, whatever becomes of the file; elsewhere one in the private
// folder of the process, made anew for each start.
type program struct {
	file   string
	sum    string
	sealed *os.File // nil: a copy is made for each start
}

// loadProgram copies a program, if it is the right one.
func loadProgram(file, sum string) (*program, error) {
	p := &program{file: file, sum: sum}
	sealed, err := seal(filepath.Base(file), p.copyTo)
	if errors.Is(err, errors.ErrUnsupported) {
		err = p.copyTo(io.Discard) // each start makes a copy; a mistake is told now
	}
	if err != nil {
		return nil, err
	}
	p.sealed = sealed
	return p, nil
}

// copyTo writes the program somewhere. The error is errAnother if it was another one.
func (p *program) copyTo(to io.Writer) error {
	from, err := os.Open(p.file)
	if err != nil {
		return err
	}
	defer from.Close()
	info, err := from.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() { // a device may have no end
		return fmt.Errorf("%s is not a file", p.file)
	}
	sum := sha256.New()
	if _, err := io.Copy(to, io.TeeReader(from, sum)); err != nil {
		return err
	}
	if is := hex.EncodeToString(sum.Sum(nil)); !strings.EqualFold(is, p.sum) {
		return fmt.Errorf("%s is %w: %s", p.file, errAnother, is)
	}
	return nil
}

// prepare returns the path to execute, and the files that the process must have from descriptor 3 on for that.
func (p *program) prepare(folder string) (path string, files []*os.File, err error) {
	if p.sealed != nil {
		return "/proc/self/fd/3", []*os.File{p.sealed}, nil
	}
	path = filepath.Join(folder, "program")
	to, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o500) //nolint:gosec // it is a program
	if err != nil {
		return "", nil, err
	}
	return path, nil, errors.Join(p.copyTo(to), to.Close())
}

func (p *program) close() error {
	if p.sealed == nil {
		return nil
	}
	return p.sealed.Close()
}
