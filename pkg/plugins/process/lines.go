package process

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"
	"unicode"
)

// lines puts what a plugin says into the router's log, no more than so many lines a second. It is safe for concurrent use.
type lines struct {
	log     *slog.Logger
	rate    int // lines a second
	longest int // bytes of a line

	mu         sync.Mutex
	second     int64 // in Unix time
	count      int   // so far in this second
	suppressed int   // since it was last said
}

func newLines(log *slog.Logger, l *Limits) *lines {
	return &lines{log: log, rate: l.Log, longest: int(l.LogLine)}
}

// line logs one line. from is where it came from: log, stdout or stderr.
func (l *lines) line(ctx context.Context, level slog.Level, from string, text []byte) {
	if !l.log.Enabled(ctx, level) || !l.allow() {
		return
	}
	l.log.Log(ctx, level, "plugin", "from", from, "text", clean(bytes.TrimRight(text, "\r\n"), l.longest))
}

func (l *lines) allow() bool {
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

// report says how many lines were left out and not mentioned yet.
func (l *lines) report() {
	l.mu.Lock()
	n := l.suppressed
	l.suppressed = 0
	l.mu.Unlock()
	l.say(n)
}

func (l *lines) say(suppressed int) {
	if suppressed > 0 {
		l.log.Warn("plugin logs too much, lines left out", "lines", suppressed, "limit_per_second", l.rate)
	}
}

// writer returns a writer that logs what is written to it line by line.
func (l *lines) writer(ctx context.Context, from string, level slog.Level) io.Writer {
	return &lineWriter{line: func(text []byte) { l.line(ctx, level, from, text) }, longest: l.longest}
}

// lineWriter keeps at most one line, cut to the longest that there may be: a line without an end is read for ever and never held.
type lineWriter struct {
	line    func(text []byte)
	longest int
	buf     []byte
}

// Write implements io.Writer. It never fails.
func (w *lineWriter) Write(p []byte) (int, error) {
	for rest := p; ; {
		line, after, ended := bytes.Cut(rest, []byte("\n"))
		w.buf = append(w.buf, line[:min(len(line), w.longest+1-len(w.buf))]...)
		if !ended {
			return len(p), nil
		}
		if len(bytes.TrimSpace(w.buf)) > 0 {
			w.line(w.buf)
		}
		w.buf, rest = w.buf[:0], after
	}
}

// tailSize is how many bytes are told of what a plugin last said.
const tailSize = 500

// tail keeps the end of what is written to it. It is safe for concurrent use.
type tail struct {
	mu   sync.Mutex
	text []byte
}

// Write implements io.Writer. It never fails.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p[max(0, len(p)-tailSize):]...)
	t.text = t.text[max(0, len(t.text)-tailSize):]
	return len(p), nil
}

// String returns it on one line.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(strings.FieldsFunc(clean(t.text, tailSize), func(r rune) bool { return r == '\n' }), "; ")
}

// clean makes a plugin's text fit for an error or a log: bounded, UTF-8, a copy.
func clean[T ~string | ~[]byte](text T, longest int) string {
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
