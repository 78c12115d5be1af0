// Package lines puts what the code of others prints into the router's log: line by line, cut, without what would move a terminal's cursor,
// and no more than so many lines a second.
package lines

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"
	"unicode"
)

// Log is where the lines of one handler go. It is safe for concurrent use.
type Log struct {
	log     *slog.Logger
	rate    int // lines a second
	longest int // bytes of a line

	mu         sync.Mutex
	second     int64 // in Unix time
	count      int   // so far in this second
	suppressed int   // since it was last said
}

// New returns a Log that lets so many lines a second through, and so many bytes of each.
func New(log *slog.Logger, rate, longest int) *Log {
	return &Log{log: log, rate: rate, longest: longest}
}

// Line logs one line. from says where it came from: log, stdout or stderr.
func (l *Log) Line(ctx context.Context, level slog.Level, from string, text []byte) {
	if !l.log.Enabled(ctx, level) || !l.allow() {
		return
	}
	if len(text) <= l.longest+2 { // what is cut is not searched
		text = bytes.TrimRight(text, "\r\n")
	}
	l.log.Log(ctx, level, "handler says", "from", from, "text", Clean(text, l.longest))
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
		l.log.Warn("handler says too much, lines left out", "lines", suppressed, "limit_per_second", l.rate)
	}
}

// Writer returns a writer for one stream. ctx is for the logger.
func (l *Log) Writer(ctx context.Context, from string, level slog.Level) *Writer {
	return &Writer{line: func(text []byte) { l.Line(ctx, level, from, text) }, longest: l.longest}
}

// Writer logs what is written to it line by line, but blank lines. It keeps at most one line, cut to the longest that there may be: a line
// without an end can be written for ever. It is used by one goroutine at a time.
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

// Clean makes the text of others fit for an error or a log: of at most so many bytes, UTF-8, a copy.
func Clean[T ~string | ~[]byte](text T, longest int) string {
	cut := text[:min(len(text), longest)]
	s := strings.Map(printable, strings.ToValidUTF8(strings.Clone(string(cut)), "\uFFFD"))
	if len(text) > longest {
		s += "…"
	}
	return s
}

// printable replaces what would move a terminal's cursor or ring its bell.
func printable(r rune) rune {
	if unicode.IsControl(r) && r != '\n' && r != '\t' {
		return unicode.ReplacementChar
	}
	return r
}
