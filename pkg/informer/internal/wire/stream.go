package wire

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"unsafe"
)

const (
	// bufferSize is the number of bytes of one read. By BenchmarkIngest an event of 5 KB costs 17.3
	// µs of CPU at 16 KiB, 12.7 at 64 KiB, 12.0 at 128 KiB and 11.7 at 256 KiB; every watch has
	// such a buffer.
	bufferSize = 128 << 10
)

var (
	errTooBig = fmt.Errorf("larger than %d MiB", MaxObject>>20)
	// ErrNotJSON says that a response is not JSON.
	ErrNotJSON = errors.New("the API server sent something that is not JSON (does a proxy before it ask for a login?)")
)

// Stream cuts a response body into the texts of JSON values. Texts are views into its buffer and
// valid until the next call of a method.
type Stream struct {
	body       io.Reader
	heard      func()
	buf        []byte
	start, end int // bounds of the unconsumed bytes
	lined      int // buf[start:lined] has no newline
	ext        extent
	max        int
	failed     error // of the body
}

// NewStream returns a stream over a response body. heard is called after each read that returned
// bytes.
func NewStream(body io.Reader, heard func()) *Stream {
	return &Stream{body: body, heard: heard, buf: make([]byte, bufferSize), max: MaxObject}
}

// unread returns the unconsumed bytes of the buffer.
func (s *Stream) unread() string { return view(s.buf[s.start:s.end]) }

func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// advance consumes n bytes.
func (s *Stream) advance(n int) {
	s.start += n
	s.lined = max(s.lined, s.start)
	s.ext = extent{}
}

// close ends a read that another goroutine waits for, if the body can be closed.
func (s *Stream) close() {
	if body, ok := s.body.(io.Closer); ok {
		_ = body.Close()
	}
}

// more reads once, and makes room in the buffer if necessary. After an error it returns this error.
func (s *Stream) more() error {
	if s.failed != nil {
		return s.failed
	}
	if s.end == len(s.buf) || s.start == s.end {
		s.makeRoom()
	}
	for {
		n, err := s.body.Read(s.buf[s.end:])
		s.end += n
		if n > 0 {
			s.heard()
			return nil
		}
		if err != nil {
			s.failed = err
			return err
		}
	}
}

// fill reads until there are n unread bytes. It returns false if the body ends before.
func (s *Stream) fill(n int) bool {
	for s.end-s.start < n {
		if s.more() != nil {
			return false
		}
	}
	return true
}

func (s *Stream) makeRoom() {
	unread := s.buf[s.start:s.end]
	if len(unread) > len(s.buf)/2 {
		s.buf = append(make([]byte, 0, 2*len(s.buf)), unread...)
		s.buf = s.buf[:cap(s.buf)]
	} else if len(s.buf) > bufferSize && len(unread) < bufferSize/2 { // a big object has passed
		s.buf = make([]byte, bufferSize)
		copy(s.buf, unread)
	} else {
		copy(s.buf, unread)
	}
	s.end, s.lined, s.start = len(unread), s.lined-s.start, 0
}

// peek returns the next byte that is not white space, without consuming it.
func (s *Stream) peek() (byte, error) {
	for {
		if s.skipSpace(); s.start < s.end {
			return s.buf[s.start], nil
		}
		if err := s.more(); err != nil {
			return 0, err
		}
	}
}

// wholeLine returns the unread bytes up to the next newline, and reads until there is one. It
// returns false if there is none although the text may be complete, or too big.
func (s *Stream) wholeLine() (string, bool) {
	for {
		if text, ok := s.line(); ok {
			return text, true
		}
		if !s.incomplete() || s.more() != nil {
			return "", false
		}
	}
}

// incomplete reports whether the unread bytes are surely only a part of a value. They do not begin
// with white space.
func (s *Stream) incomplete() bool {
	if s.end-s.start > s.max {
		return false
	}
	// The end of the value is looked for only at the ends of objects: the search reads byte by byte.
	if s.start == s.end || s.buf[s.end-1] != '}' {
		return true
	}
	_, done, err := s.ext.feed(s.buf[s.start+s.ext.read : s.end])
	if done || err != nil {
		s.ext = extent{}
		return false
	}
	return true
}

func skipSpace(text string, i int) int {
	for i < len(text) && (text[i] == ' ' || text[i] == '\t' || text[i] == '\r' || text[i] == '\n') {
		i++
	}
	return i
}

// skipSpace consumes white space in the buffer, and reports whether there was some.
func (s *Stream) skipSpace() bool {
	n := skipSpace(s.unread(), 0)
	if n > 0 {
		s.advance(n)
	}
	return n > 0
}

// line returns the unread bytes up to the next newline, if the buffer has one.
func (s *Stream) line() (string, bool) {
	n := bytes.IndexByte(s.buf[s.lined:s.end], '\n')
	if n < 0 {
		s.lined = s.end
		return "", false
	}
	// Up to here there is no newline. The position lets the next call find the newline again at
	// once if the line holds several values.
	s.lined += n
	return view(s.buf[s.start:s.lined]), true
}

// Text returns the JSON value that starts at the first unread byte, and reads until it is complete.
// It finds only the end of the value and scans each byte once. The value is not consumed. The error
// is ErrNotJSON, the error of the body, or errTooBig together with the beginning of the value,
// which is then consumed.
func (s *Stream) Text() (string, error) {
	for {
		n, done, err := s.ext.feed(s.buf[s.start+s.ext.read : s.end])
		if err != nil {
			return "", err
		}
		if done {
			s.ext = extent{}
			return view(s.buf[s.start : s.start+n]), nil
		}
		if s.end-s.start > s.max {
			return s.discard()
		}
		if err := s.more(); err != nil {
			return "", err
		}
	}
}

// discard skips the rest of the current value, and returns its beginning.
func (s *Stream) discard() (string, error) {
	const keep = 64 << 10
	began := string(s.buf[s.start:min(s.start+keep, s.end)])
	for {
		s.start, s.lined = s.end, s.end
		if err := s.more(); err != nil {
			return "", err
		}
		before := s.ext.read
		n, done, err := s.ext.feed(s.buf[s.start:s.end])
		if err != nil {
			return "", err
		}
		if done {
			s.advance(n - before)
			return began, errTooBig
		}
	}
}

// extent finds the end of a JSON value, which arrives in pieces, by its quotes and brackets alone.
type extent struct {
	read             int // bytes so far
	depth            int
	inString, scalar bool
	escaped          bool
}

// feed takes the next piece. When the value is complete it returns its length over all pieces.
func (e *extent) feed(piece []byte) (n int, done bool, err error) {
	for i, c := range piece {
		// A switch over the states of the text, because each byte of a long text passes here.
		switch {
		case e.inString:
			switch {
			case e.escaped:
				e.escaped = false
			case c == '\\':
				e.escaped = true
			case c == '"':
				e.inString = false
				if e.depth == 0 {
					return e.complete(i + 1)
				}
			case c < ' ':
				return 0, false, fmt.Errorf("%w: a control character in a string", ErrNotJSON)
			}
		case e.scalar:
			switch c {
			case ',', '}', ']', ' ', '\t', '\r', '\n', ':':
				return e.complete(i)
			}
		default:
			if done, err = e.structure(c); done || err != nil {
				n, _, _ = e.complete(i + 1)
				return n, done, err
			}
		}
	}
	e.read += len(piece)
	return 0, false, nil
}

func (e *extent) complete(more int) (int, bool, error) {
	e.read += more
	return e.read, true, nil
}

// structure handles a byte outside of strings.
func (e *extent) structure(c byte) (done bool, err error) {
	switch c {
	case '"':
		e.inString = true
	case '{', '[':
		e.depth++
	case '}', ']':
		e.depth--
		if e.depth < 0 {
			return false, fmt.Errorf("%w: a bracket that was not opened", ErrNotJSON)
		}
		return e.depth == 0, nil
	default:
		if e.depth > 0 {
			return false, nil
		}
		if c != '-' && (c < '0' || c > '9') && c != 't' && c != 'f' && c != 'n' {
			return false, ErrNotJSON
		}
		e.scalar = true
	}
	return false, nil
}
