// Package lines writes the output of plugins and libraries to the router's log: line by line, with
// a bound on the length of a line and on the lines per second, and without characters that move the
// cursor of a terminal.
package lines

import (
	"bytes"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/deltarouter/deltarouter/internal/printable"
)

// Log is the destination of the lines of one handler. It is safe for concurrent use.
type Log struct {
	log     *slog.Logger
	says    string // the message
	rate    int    // lines per second
	longest int    // bytes of a line

	mu         sync.Mutex
	second     int64 // in Unix time
	count      int   // in this second
	suppressed int   // since the last report
}

// New returns a Log that logs at most rate lines per second, and at most longest bytes of each.
func New(log *slog.Logger, rate, longest int) *Log {
	return NewOf("handler says", log, rate, longest)
}

// NewOf is [New] for output of others than handlers: says is the message.
func NewOf(says string, log *slog.Logger, rate, longest int) *Log {
	return &Log{log: log, says: says, rate: rate, longest: longest}
}

// Line logs one line. from is its origin: log, stdout or stderr.
func (l *Log) Line(ctx context.Context, level slog.Level, from string, text []byte) {
	if !l.log.Enabled(ctx, level) || !l.allow() {
		return
	}
	if len(text) <= l.longest+2 { // a line that will be cut need not be trimmed
		text = bytes.TrimRight(text, "\r\n")
	}
	l.log.Log(ctx, level, l.says, "from", from, "text", printable.Text(text, l.longest)) //nolint:sloglint // one of two constants
}

func (l *Log) allow() bool {
	l.mu.Lock()
	now := time.Now().Unix()
	report := 0
	if now != l.second {
		l.second, l.count = now, 0
		report, l.suppressed = l.suppressed, 0
	}
	l.count++
	ok := l.count <= l.rate
	if !ok {
		l.suppressed++
	}
	l.mu.Unlock()
	l.say(report)
	return ok
}

// Report logs the number of suppressed lines since the last report.
func (l *Log) Report() {
	l.mu.Lock()
	n := l.suppressed
	l.suppressed = 0
	l.mu.Unlock()
	l.say(n)
}

func (l *Log) say(suppressed int) {
	if suppressed > 0 {
		l.log.Warn(l.says+" too much, lines left out", "lines", suppressed, "limit_per_second", l.rate) //nolint:sloglint // one of two constants
	}
}

// Writer returns a writer for one stream. ctx is for the logger.
func (l *Log) Writer(ctx context.Context, from string, level slog.Level) *Writer {
	return &Writer{line: func(text []byte) { l.Line(ctx, level, from, text) }, longest: l.longest}
}

// Writer logs its input line by line, without blank lines. It buffers at most one line, cut to the
// maximum length, because a line may never end. It is used by one goroutine at a time.
type Writer struct {
	line    func(text []byte)
	longest int
	buf     []byte
}

// Write implements io.Writer. It never fails.
func (w *Writer) Write(p []byte) (int, error) {
	for rest := p; ; {
		line, after, ended := bytes.Cut(rest, []byte("\n"))
		w.buf = append(w.buf, line[:min(len(line), w.longest+1-len(w.buf))]...)
		if !ended {
			return len(p), nil
		}
		w.Flush()
		rest = after
	}
}

// Flush logs a last line without newline.
func (w *Writer) Flush() {
	if len(bytes.TrimSpace(w.buf)) > 0 {
		w.line(w.buf)
	}
	w.buf = w.buf[:0]
}
