// Package lines puts what the code of others prints into the router's log: line by line, cut,
// without what would move a terminal's cursor, and no more than so many lines a second.
package lines

import (
	"bytes"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/deltarouter/deltarouter/internal/printable"
)

// Log is where the lines of one handler go. It is safe for concurrent use.
type Log struct {
	log     *slog.Logger
	says    string // the message
	rate    int    // lines a second
	longest int    // bytes of a line

	mu         sync.Mutex
	second     int64 // in Unix time
	count      int   // so far in this second
	suppressed int   // since it was last said
}

// New returns a Log that lets so many lines a second through, and so many bytes of each.
func New(log *slog.Logger, rate, longest int) *Log {
	return NewOf("handler says", log, rate, longest)
}

// NewOf is [New] for what others than handlers say: says is the message.
func NewOf(says string, log *slog.Logger, rate, longest int) *Log {
	return &Log{log: log, says: says, rate: rate, longest: longest}
}

// Line logs one line. from says where it came from: log, stdout or stderr.
func (l *Log) Line(ctx context.Context, level slog.Level, from string, text []byte) {
	if !l.log.Enabled(ctx, level) || !l.allow() {
		return
	}
	if len(text) <= l.longest+2 { // what is cut is not searched
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

// Report says how many lines were left out and not mentioned yet.
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

// Writer logs what is written to it line by line, but blank lines. It keeps at most one line, cut
// to the longest that there may be: a line without an end can be written for ever. It is used by
// one goroutine at a time.
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

// Flush logs what does not end in a new line.
func (w *Writer) Flush() {
	if len(bytes.TrimSpace(w.buf)) > 0 {
		w.line(w.buf)
	}
	w.buf = w.buf[:0]
}
