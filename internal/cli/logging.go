package cli

import (
	"fmt"
	"io"
	"log/slog"

	"github.com/deltarouter/deltarouter/internal/printable"
)

// Logging is the level and the format of the log. Without -log-format the format is text on a
// terminal and JSON elsewhere.
type Logging struct {
	Level  slog.Level
	format string
}

// AddFlags adds -log-level and -log-format.
func (l *Logging) AddFlags(f *Flags, level slog.Level) {
	l.Level = level
	f.Var(&levelValue{&l.Level}, "log-level", "`debug|info|warn|error` the least level of log lines")
	f.ChoiceVar(&l.format, "log-format", "", []string{"text", "json"},
		"the format of log lines (default: text on a terminal, json elsewhere)")
}

// levelValue is a flag.Value.
type levelValue struct{ level *slog.Level }

// Set implements flag.Value.
func (v *levelValue) Set(text string) error {
	if err := v.level.UnmarshalText([]byte(text)); err != nil {
		levels := []string{"debug", "info", "warn", "error"}
		return fmt.Errorf("write %s%s", orList(levels), didYouMean(text, "", levels))
	}
	return nil
}

// String implements flag.Value.
func (v *levelValue) String() string {
	if v.level == nil {
		return ""
	}
	return map[slog.Level]string{slog.LevelDebug: "debug", slog.LevelInfo: "info", slog.LevelWarn: "warn"}[*v.level]
}

// New returns a logger, which escapes control characters, and rounds durations for people.
func (l Logging) New(w io.Writer) *slog.Logger {
	opts := &slog.HandlerOptions{Level: l.Level, ReplaceAttr: roundDuration}
	if e, ok := w.(*printable.Escaper); ok {
		w = e.Unwrap()
	}
	if l.format == "text" || l.format == "" && IsTerminal(w) {
		return slog.New(slog.NewTextHandler(printable.Writer(w), opts))
	}
	return slog.New(slog.NewJSONHandler(printable.Writer(w), opts))
}

// roundDuration replaces a duration by its text, which JSON would show in nanoseconds.
func roundDuration(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.StringValue(printable.Duration(a.Value.Duration()))
	}
	return a
}
