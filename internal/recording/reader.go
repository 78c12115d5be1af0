package recording

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"

	"github.com/deltarouter/deltarouter/internal/rawjson"
)

// Limits bounds the size of a recording.
type Limits struct {
	Line  int   // bytes of a line; 0: 32 MiB
	Total int64 // bytes of all lines, unpacked; 0: 64 GiB
}

const (
	maxLine  = 32 << 20
	maxTotal = 64 << 30
	// maxWindow bounds how far compressed data may refer back, in bytes, and so the memory of a
	// decoder.
	maxWindow = 32 << 20
)

// The errors of a [Reader].
var (
	// ErrCutOff reports a recording without an end: the writer was killed, or the file was copied
	// incompletely. The lines before are valid.
	ErrCutOff = errors.New("the recording is cut off")
	// ErrTooLarge reports that a bound of [Limits] was exceeded.
	ErrTooLarge = errors.New("too large")
	// ErrFormat reports another format or version.
	ErrFormat = errors.New("not a recording")
)

// Reader reads a recording.
type Reader struct {
	in     *bufio.Reader
	zip    *zstd.Decoder // nil: not compressed
	limits Limits
	header Header
	n      int   // lines
	total  int64 // bytes
	line   []byte
	end    error // returned by all further calls
}

// magic is the begin of data compressed with zstd.
var magic = []byte{0x28, 0xb5, 0x2f, 0xfd}

// NewReader reads the header. The error wraps [ErrFormat], [ErrCutOff] or the error of in.
func NewReader(in io.Reader, limits Limits) (*Reader, error) {
	if limits.Line <= 0 {
		limits.Line = maxLine
	}
	if limits.Total <= 0 {
		limits.Total = maxTotal
	}
	r := &Reader{in: bufio.NewReaderSize(in, 64<<10), limits: limits}
	if begin, _ := r.in.Peek(len(magic)); bytes.Equal(begin, magic) {
		zip, err := zstd.NewReader(r.in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrFormat, err)
		}
		r.zip, r.in = zip, bufio.NewReaderSize(zip, 64<<10)
	}
	if err := r.readHeader(); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

func (r *Reader) readHeader() error {
	text, err := r.next()
	switch {
	case errors.Is(err, io.EOF):
		return fmt.Errorf("%w: it is empty", ErrFormat)
	case err != nil:
		return err
	case rawjson.Check(text) != nil || json.Unmarshal([]byte(text), &r.header) != nil || r.header.Format != format:
		return fmt.Errorf("%w: its first line does not say that it is a %s", ErrFormat, format)
	case r.header.Version != Version:
		return fmt.Errorf("%w of version %d, which this program reads: it is of version %d", ErrFormat, Version, r.header.Version)
	}
	return nil
}

// Header returns the first line.
func (r *Reader) Header() Header { return r.header }

// Next returns the next line. The error is io.EOF after [End]; else it wraps [ErrCutOff] or is an
// [Error]. Further calls return the same error.
func (r *Reader) Next() (l Line, err error) {
	if r.end != nil {
		return l, r.end
	}
	text, err := r.next()
	switch {
	case errors.Is(err, io.EOF):
		err = fmt.Errorf("%w after line %d", ErrCutOff, r.n)
	case errors.Is(err, ErrCutOff):
	case err != nil:
		err = &Error{r.n + 1, err}
	default:
		if l, err = r.parse(text); err != nil {
			err = &Error{r.n, err}
		}
	}
	r.end = err
	if l.Op == End {
		r.end = io.EOF
	}
	return l, err
}

func (r *Reader) parse(text string) (l Line, err error) {
	if l, err = parse(text); err != nil {
		return Line{}, err
	}
	if _, known := r.header.Sources[l.Source]; !known && l.Op != End {
		return Line{}, errors.New("the header does not contain its source")
	}
	return l, nil
}

// next returns the next whole line, or io.EOF.
func (r *Reader) next() (string, error) {
	r.line = r.line[:0]
	for {
		piece, err := r.in.ReadSlice('\n')
		r.total += int64(len(piece))
		if len(r.line)+len(piece) > r.limits.Line || r.total > r.limits.Total {
			return "", fmt.Errorf("%w: a line has more than %d bytes, or all have more than %d", ErrTooLarge, r.limits.Line, r.limits.Total)
		}
		r.line = append(r.line, piece...)
		switch {
		case err == nil:
			r.n++
			return string(r.line), nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(r.line) == 0:
			return "", io.EOF
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return "", fmt.Errorf("%w within line %d", ErrCutOff, r.n+1)
		default:
			return "", err
		}
	}
}

// Close frees the decoder. It does not close the input.
func (r *Reader) Close() {
	if r.zip != nil {
		r.zip.Close()
	}
}

// Is reports whether a file is probably a recording: it is compressed, or begins like one.
func Is(text []byte) bool {
	line, _, _ := bytes.Cut(text, []byte("\n"))
	return bytes.HasPrefix(text, magic) || bytes.HasPrefix(line, []byte("{")) && bytes.Contains(line, []byte(format))
}
