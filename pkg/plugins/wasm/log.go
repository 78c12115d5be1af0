package wasm

import (
	"bytes"
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	logInfo = slog.LevelInfo
	logWarn = slog.LevelWarn
)

// guestLog puts what the guests of one handler say into the router's log, no more than so many lines a second. It is safe for
// concurrent use.
type guestLog struct {
	log     *slog.Logger
	rate    int // lines a second
	longest int // bytes of a line

	mu         sync.Mutex
	second     int64 // in Unix time
	lines      int   // so far in this second
	suppressed int   // since it was last said
}

func newGuestLog(log *slog.Logger, l *Limits) *guestLog {
	return &guestLog{log: log, rate: l.Log, longest: int(l.LogLine)}
}

// line logs one line. from is where it came from: log, stdout or stderr.
func (g *guestLog) line(ctx context.Context, level slog.Level, from string, text []byte) {
	if !g.log.Enabled(ctx, level) || !g.allow() {
		return
	}
	if len(text) <= g.longest+2 { // what is cut is not searched
		text = bytes.TrimRight(text, "\r\n")
	}
	g.log.Log(ctx, level, "guest", "from", from, "text", clean(text, g.longest))
}

func (g *guestLog) allow() bool {
	g.mu.Lock()
	now := time.Now().Unix()
	report := 0
	if now != g.second {
		g.second, g.lines = now, 0
		report, g.suppressed = g.suppressed, 0
	}
	g.lines++
	ok := g.lines <= g.rate
	if !ok {
		g.suppressed++
	}
	g.mu.Unlock()
	g.say(report)
	return ok
}

// report says how many lines were left out and not mentioned yet.
func (g *guestLog) report() {
	g.mu.Lock()
	n := g.suppressed
	g.suppressed = 0
	g.mu.Unlock()
	g.say(n)
}

func (g *guestLog) say(suppressed int) {
	if suppressed > 0 {
		g.log.Warn("guest logs too much, lines left out", "lines", suppressed, "limit_per_second", g.rate)
	}
}

// writer returns a writer for the stdout or stderr of one instance. ctx is for the logger.
func (g *guestLog) writer(ctx context.Context, from string, level slog.Level) *lineWriter {
	line := func(text []byte) { g.line(ctx, level, from, text) }
	return &lineWriter{line: line, longest: g.longest}
}

// lineWriter logs what is written to it line by line. It keeps at most one line, cut to the longest that there may be.
type lineWriter struct {
	line    func(text []byte)
	longest int
	buf     []byte
}

func (w *lineWriter) write(p []byte) {
	for {
		line, rest, ended := bytes.Cut(p, []byte("\n"))
		w.buf = append(w.buf, line[:min(len(line), w.longest+1-len(w.buf))]...)
		if !ended {
			return
		}
		w.flush()
		p = rest
	}
}

// flush logs what does not end in a new line, unless it is blank.
func (w *lineWriter) flush() {
	if len(bytes.TrimSpace(w.buf)) > 0 {
		w.line(w.buf)
	}
	w.buf = w.buf[:0]
}
