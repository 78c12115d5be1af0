package deltarouter

import (
	"bytes"
	"context"
	"log/slog"
	"runtime/debug"
	"sync"
)

// The levels of rtr_v1.log.
const (
	levelDebug = iota
	levelInfo
	levelWarn
	levelError
)

// newLogger returns a logger that passes each record to write as one line: the message, then
// key=value pairs.
func newLogger(write func(level int32, text string)) *slog.Logger {
	h := &logHandler{out: &logSink{write: write}}
	h.attrs = slog.NewTextHandler(&h.out.text, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: onlyAttrs})
	return slog.New(h)
}

// onlyAttrs removes the attributes that the router adds itself, and the message, which precedes the
// attributes.
func onlyAttrs(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && (a.Key == slog.TimeKey || a.Key == slog.LevelKey || a.Key == slog.MessageKey) {
		return slog.Attr{}
	}
	return a
}

// logSink is the state that a logger and its derived loggers share.
type logSink struct {
	mu    sync.Mutex
	text  bytes.Buffer
	write func(level int32, text string)
}

type logHandler struct {
	out   *logSink
	attrs slog.Handler // formats into out.text
}

func (h *logHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h *logHandler) Handle(ctx context.Context, r slog.Record) error {
	h.out.mu.Lock()
	defer h.out.mu.Unlock()
	h.out.text.Reset()
	if err := h.attrs.Handle(ctx, r); err != nil {
		return err
	}
	text := r.Message
	if attrs := bytes.TrimSpace(h.out.text.Bytes()); len(attrs) > 0 {
		text += " " + string(attrs)
	}
	h.out.write(logLevel(r.Level), text)
	return nil
}

func (h *logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &logHandler{out: h.out, attrs: h.attrs.WithAttrs(attrs)}
}

func (h *logHandler) WithGroup(name string) slog.Handler {
	return &logHandler{out: h.out, attrs: h.attrs.WithGroup(name)}
}

func logLevel(l slog.Level) int32 {
	switch {
	case l < slog.LevelInfo:
		return levelDebug
	case l < slog.LevelWarn:
		return levelInfo
	case l < slog.LevelError:
		return levelWarn
	}
	return levelError
}

// logPanic returns a function that logs a panic of the handler.
func logPanic(log *slog.Logger) func(d Delta, reason any) {
	return func(d Delta, reason any) {
		log.Error("handler panicked", "delta", d.String(), "panic", reason, "stack", string(debug.Stack()))
	}
}
