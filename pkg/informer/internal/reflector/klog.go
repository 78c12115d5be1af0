package reflector

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"k8s.io/klog/v2"
)

// QuietKlog redirects the logging of client-go to log, see [KlogTo]. client-go's logging is global;
// restore resets it.
func QuietKlog(log *slog.Logger) (restore func()) {
	klog.SetLoggerWithOptions(KlogTo(log), klog.ContextualLogger(true))
	return klog.ClearLogger
}

// KlogTo returns a logger for client-go that writes to log, without the objects that client-go
// adds: it keeps only texts, numbers, times and errors, and of all other values the type.
func KlogTo(log *slog.Logger) klog.Logger { return klog.New(&sink{log: log, errors: slog.LevelWarn}) }

// klogOf is [KlogTo] for a Reflector: the Health logs the reason of each of its errors once.
func klogOf(log *slog.Logger) klog.Logger { return klog.New(&sink{log: log, errors: slog.LevelDebug}) }

// sink implements klog.LogSink. Its methods have no context to pass on.
type sink struct {
	log    *slog.Logger
	errors slog.Level // of errors and warnings
}

// Init implements klog.LogSink.
func (s *sink) Init(klog.RuntimeInfo) {}

// Enabled implements klog.LogSink.
func (s *sink) Enabled(level int) bool {
	return s.log.Enabled(context.Background(), severity(level)) //nolint:forbidigo // see sink
}

// severity maps client-go's verbosity: 0 is always shown.
func severity(level int) slog.Level {
	if level == 0 {
		return slog.LevelInfo
	}
	return slog.LevelDebug
}

// Info implements klog.LogSink.
func (s *sink) Info(level int, msg string, kv ...any) {
	severity := severity(level)
	if text, ok := strings.CutPrefix(msg, "Warning: "); ok {
		msg, severity = text, s.errors
	}
	s.log.LogAttrs(context.Background(), severity, "client-go", attrs(msg, kv)...) //nolint:forbidigo // see sink
}

// Error implements klog.LogSink. client-go retries after its errors.
func (s *sink) Error(err error, msg string, kv ...any) {
	all := attrs(msg, kv)
	if err != nil {
		all = append(all, slog.String("err", err.Error()))
	}
	s.log.LogAttrs(context.Background(), s.errors, "client-go", all...) //nolint:forbidigo // see sink
}

// WithValues implements klog.LogSink.
func (s *sink) WithValues(kv ...any) klog.LogSink {
	log := s.log
	for _, attr := range attrs("", kv)[1:] {
		log = log.With(attr)
	}
	return &sink{log: log, errors: s.errors}
}

// WithName implements klog.LogSink. The name is among the values anyway.
func (s *sink) WithName(string) klog.LogSink { return s }

// attrs filters the values.
func attrs(msg string, kv []any) []slog.Attr {
	all := []slog.Attr{slog.String("message", msg)}
	for i := 0; i+1 < len(kv); i += 2 {
		key, ok := kv[i].(string)
		if !ok {
			continue
		}
		all = append(all, slog.Any(key, plain(kv[i+1])))
	}
	return all
}

// plain returns v if it cannot hold an object, else its type.
func plain(v any) any {
	switch v := v.(type) {
	case nil, string, bool, int, int32, int64, uint, uint32, uint64, float64, time.Duration, time.Time:
		return v
	case error:
		return v.Error()
	}
	return fmt.Sprintf("%T", v)
}
