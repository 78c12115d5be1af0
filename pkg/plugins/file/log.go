package file

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"
)

// mode is that of a new file: whoever ships logs is in the group.
const mode = 0o640

// maxLine is how long a line may be, far more than that of any event.
const maxLine = 64 << 20

// log is a file of lines. It belongs to one goroutine at a time.
type log struct {
	cfg        sinkConfig
	now        func() time.Time
	compressor *compressor // nil: nothing is compressed
	file       *os.File    // nil: none is open
	torn       bool        // the file may end within a line
}

// append writes lines, whose ends are given. n is up to where they are in the file, always at the
// end of a line.
func (l *log) append(lines []byte, ends []int) (n int, err error) {
	size, err := l.ready()
	if err != nil {
		return 0, err
	}
	if l.cfg.MaxFiles > 0 && size > 0 && size+int64(len(lines)) > int64(l.cfg.MaxSize) {
		if err := l.putAside(); err != nil {
			return 0, err
		}
		if size, err = l.ready(); err != nil {
			return 0, err
		}
	}
	wrote, err := l.file.Write(lines)
	if err == nil {
		if l.cfg.Fsync {
			if err := l.file.Sync(); err != nil {
				// what the system makes of its memory after that is up to it: begin anew
				_ = l.close()
				return 0, err
			}
		}
		return len(lines), nil
	}
	for _, end := range ends {
		if end <= wrote {
			n = end
		}
	}
	l.torn = true
	// else it is tried again before the next write
	if cut := l.file.Truncate(size + int64(n)); cut == nil {
		l.torn = false
	}
	if l.cfg.Fsync {
		if l.file.Sync() != nil {
			n = 0
		}
	}
	return n, err
}

// ready sees to it that the file of that name is open and ends with a line, and returns its size.
func (l *log) ready() (int64, error) {
	if l.file != nil {
		at, err := os.Lstat(l.cfg.Path)
		own, ownErr := l.file.Stat()
		if ownErr != nil || errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(at, own) {
			// it was renamed, removed or replaced: its writer is done with it
			if err := l.close(); err != nil {
				return 0, err
			}
		}
	}
	if l.file == nil {
		if err := l.open(); err != nil {
			return 0, errors.Join(err, l.close())
		}
	}
	info, err := l.file.Stat()
	if err != nil {
		return 0, err
	}
	if !l.torn {
		return info.Size(), nil
	}
	return l.mend(info.Size())
}

// open opens the file, or a new one, and takes it for itself. After an error there may be a file to
// close.
func (l *log) open() (err error) {
	if l.file, err = openOwn(l.cfg.Path, os.O_RDWR|os.O_APPEND|os.O_CREATE); err != nil {
		l.file = nil
		return err
	}
	l.torn = true
	if info, err := l.file.Stat(); err != nil || !info.Mode().IsRegular() {
		return fmt.Errorf("%s is no regular file", l.cfg.Path)
	}
	if err := lock(l.file); err != nil {
		return err
	}
	if l.cfg.Fsync {
		err = syncFolder(l.cfg.Path)
	}
	l.compressor.look() // nobody else writes to the file now
	return err
}

// lineStart begins every line that this sink writes.
const lineStart = `{"specversion":"1.0",`

// mend makes the file end with a line, and returns the new size. The beginning of an event is cut
// off, since the event was not delivered. A line that only lacks its end gets it, and so does a
// line that another program wrote.
func (l *log) mend(size int64) (int64, error) {
	last, err := l.lastLine(size)
	if err != nil {
		return 0, err
	}
	switch {
	case len(last) == 0:
	case json.Valid(last) || !ownLine(last):
		if n, err := l.file.Write([]byte{'\n'}); err != nil || n == 0 {
			return 0, fmt.Errorf("end the last line: %w", err)
		}
		size++
	default:
		size -= int64(len(last))
		if err := l.file.Truncate(size); err != nil {
			return 0, fmt.Errorf("cut off half a line: %w", err)
		}
	}
	l.torn = false
	return size, nil
}

// ownLine reports whether a line, or the beginning of one, may be this sink's.
func ownLine(line []byte) bool {
	n := min(len(line), len(lineStart))
	return string(line[:n]) == lineStart[:n]
}

// lastLine returns what is behind the last end of a line.
func (l *log) lastLine(size int64) (last []byte, err error) {
	const step = 64 << 10
	for size > 0 {
		from := max(0, size-step)
		b := make([]byte, size-from)
		if _, err := l.file.ReadAt(b, from); err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		i := bytes.LastIndexByte(b, '\n')
		last = append(b[i+1:len(b):len(b)], last...)
		if i >= 0 {
			break
		}
		if size = from; len(last) > maxLine {
			return nil, fmt.Errorf("%s does not consist of lines", l.cfg.Path)
		}
	}
	return last, nil
}

// putAside renames the file and removes the oldest ones.
func (l *log) putAside() error {
	if err := l.close(); err != nil {
		return err
	}
	to := nameAside(l.cfg.Path, l.now())
	if _, err := os.Lstat(to); err == nil {
		return fmt.Errorf("%s is there already", to)
	}
	if err := os.Rename(l.cfg.Path, to); err != nil {
		return err
	}
	return prune(l.cfg.Path, l.cfg.MaxFiles)
}

func (l *log) close() error {
	if l.file == nil {
		return nil
	}
	f := l.file
	l.file = nil
	var err error
	if l.cfg.Fsync {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}
