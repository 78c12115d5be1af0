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

// mode is the mode of a new file. A log shipper reads it as a member of the group.
const mode = 0o640

// maxLine is the maximum length of a line, far more than that of any event.
const maxLine = 64 << 20

// log is a file of lines. One goroutine uses it at a time.
type log struct {
	cfg  sinkConfig
	now  func() time.Time
	file *os.File // nil: no file is open
	torn bool     // the file may end with a partial line
}

// append writes lines. ends are the offsets of their ends. n is the number of bytes that were
// written and kept, always at the end of a line.
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
				// After an error of fsync the content of the page cache is undefined, so open the
				// file again.
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
	// otherwise the next write tries it again
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

// ready ensures that the file with that name is open and ends with a complete line. It returns the
// size.
func (l *log) ready() (int64, error) {
	if l.file != nil {
		at, err := os.Lstat(l.cfg.Path)
		own, ownErr := l.file.Stat()
		if ownErr != nil || errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(at, own) {
			// the file was renamed, removed or replaced: open a new one
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

// open opens or creates the file, and locks it. After an error the file may be open.
func (l *log) open() (err error) {
	if l.file, err = openOwn(l.cfg.Path, os.O_RDWR|os.O_APPEND|os.O_CREATE); err != nil {
		l.file = nil
		return err
	}
	l.torn = true
	if info, err := l.file.Stat(); err != nil || !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", l.cfg.Path)
	}
	if err := lock(l.file); err != nil {
		return err
	}
	if l.cfg.Fsync {
		err = syncFolder(l.cfg.Path)
	}
	return err
}

// lineStart is the beginning of each line of this sink.
const lineStart = `{"specversion":"1.0",`

// mend makes the file end with a complete line, and returns the new size.
//
//   - A partial line of this sink is removed, because its event was not delivered.
//   - A complete line without a newline gets one.
//   - A line of another program gets a newline.
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

// ownLine reports whether a line, or the beginning of a line, may come from this sink.
func ownLine(line []byte) bool {
	n := min(len(line), len(lineStart))
	return string(line[:n]) == lineStart[:n]
}

// lastLine returns the bytes after the last newline.
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

// putAside rotates the file and removes the oldest rotated files.
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
