package recording

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// Writer writes a recording. Flushed lines can be read even after a crash. It is safe for
// concurrent use.
type Writer struct {
	mu     sync.Mutex
	out    *bufio.Writer
	zip    *zstd.Encoder // nil: not compressed
	kinds  map[string]bool
	line   []byte
	failed error
}

// NewWriter begins a recording.
func NewWriter(out io.Writer, compress bool, h Header) (*Writer, error) {
	w := &Writer{kinds: make(map[string]bool)}
	if compress {
		var err error
		if w.zip, err = zstd.NewWriter(out, zstd.WithEncoderConcurrency(1)); err != nil {
			return nil, fmt.Errorf("compression: %w", err)
		}
		out = w.zip
	}
	w.out = bufio.NewWriterSize(out, 64<<10)
	h.Format, h.Version = format, Version
	first, err := json.Marshal(h)
	if err != nil {
		return nil, fmt.Errorf("the header: %w", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w, w.write(append(first, '\n'))
}

// Write writes a line. Only the first line of a source with a kind contains it. After an error all
// calls return that error.
func (w *Writer) Write(l Line) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.kinds[l.Source] {
		l.Kind = ""
	} else if l.Kind != "" {
		w.kinds[l.Source] = true
	}
	w.line = l.append(w.line[:0])
	return w.write(w.line)
}

func (w *Writer) write(line []byte) error {
	if w.failed == nil {
		_, w.failed = w.out.Write(line)
	}
	return w.failed
}

// Flush writes all buffered lines.
func (w *Writer) Flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failed == nil {
		w.failed = w.out.Flush()
	}
	if w.failed == nil && w.zip != nil {
		w.failed = w.zip.Flush()
	}
	return w.failed
}

var errClosed = errors.New("the recording is closed")

// Close flushes and ends the compression. It writes no [End] and does not close the output.
func (w *Writer) Close() error {
	err := w.Flush()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.zip != nil {
		err = errors.Join(err, w.zip.Close())
	}
	if w.failed == nil {
		w.failed = errClosed
	}
	return err
}
