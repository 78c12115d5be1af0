package plugins_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/test/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// TestErrors: an error has the class and the time of its outermost mark, and keeps its cause.
func TestErrors(t *testing.T) {
	cause := errors.New("cause")
	for _, c := range []struct {
		name  string
		err   error
		class plugins.Class
		after time.Duration
	}{
		{"unmarked", cause, plugins.Failed, 0},
		{"later", plugins.RetryLater(cause, time.Minute), plugins.Failed, time.Minute},
		{"later, wrapped", fmt.Errorf("sink: %w", plugins.RetryLater(cause, time.Minute)), plugins.Failed, time.Minute},
		{"postponed", plugins.Postpone(cause, time.Minute), plugins.Postponed, time.Minute},
		{"postponed, wrapped", fmt.Errorf("sink: %w", plugins.Postpone(cause, 0)), plugins.Postponed, 0},
		{"rejected", plugins.Reject(cause), plugins.Rejected, 0},
		{"rejected, wrapped", fmt.Errorf("sink: %w", plugins.Reject(cause)), plugins.Rejected, 0},
		{"paused", plugins.Pause(cause), plugins.Paused, 0},
		{"paused, wrapped", fmt.Errorf("sink: %w", plugins.Pause(cause)), plugins.Paused, 0},
		{"rejected after all", plugins.Reject(plugins.RetryLater(cause, time.Second)), plugins.Rejected, 0},
		{"postponed after all", plugins.Postpone(fmt.Errorf("sink: %w", plugins.Reject(cause)), time.Second), plugins.Postponed, time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := plugins.ClassOf(c.err); got != c.class {
				t.Errorf("class %d, want %d", got, c.class)
			}
			if got := plugins.RetryAfter(c.err); got != c.after {
				t.Errorf("retry after %v", got)
			}
			if !errors.Is(c.err, cause) || c.err.Error() != "cause" && c.err.Error() != "sink: cause" {
				t.Errorf("the cause is lost: %v", c.err)
			}
		})
	}
	if plugins.ClassOf(nil) != plugins.Failed || plugins.RetryAfter(nil) != 0 {
		t.Error("nil has a mark")
	}
}

func TestVerdictNames(t *testing.T) {
	for verdict, want := range map[plugins.Verdict]string{
		plugins.OK: "ok", plugins.Retry: "retry", plugins.Drop: "drop", plugins.Fail: "fail", 77: "unknown",
	} {
		if got := verdict.String(); got != want {
			t.Errorf("verdict %d is %q, want %q", verdict, got, want)
		}
	}
}

// TestBound: whatever a stranger wrote, the text of an error is short, on one line and harmless,
// and its marks stay.
func TestBound(t *testing.T) {
	// Guarantee: answers-leak
	long := strings.Repeat("\x01é\u202e\x1b[31m\n", 1<<20)
	marks := map[string]func(error) error{
		"plain":     func(err error) error { return err },
		"rejected":  plugins.Reject,
		"later":     func(err error) error { return plugins.RetryLater(err, time.Minute) },
		"pause":     plugins.Pause,
		"postponed": func(err error) error { return plugins.Postpone(err, time.Second) },
		"twice":     func(err error) error { return plugins.Postpone(plugins.Reject(err), time.Second) },
		"said":      func(err error) error { return plugins.Reject(plugins.WithResponse(err, "why")) },
		"category":  func(err error) error { return plugins.Reject(plugins.Categorize(err, "answered 403 Forbidden")) },
		"transport": func(err error) error {
			return fmt.Errorf("%w: %w", err, plugins.Transport(syscall.ECONNREFUSED))
		},
		"over": func(err error) error { return fmt.Errorf("%w: %w", err, context.Canceled) },
	}
	for name, mark := range marks {
		for _, text := range []string{"short", "two\nlines", long} {
			was := mark(errors.New(text))
			err := plugins.Bound(was)
			if got := err.Error(); len(got) > 1<<10 || !utf8.ValidString(got) || strings.ContainsAny(got, "\x01\x1b\n\u202e") {
				t.Errorf("%s: %d bytes: %.100q", name, len(got), got)
			}
			if plugins.ClassOf(err) != plugins.ClassOf(was) || plugins.RetryAfter(err) != plugins.RetryAfter(was) || plugins.ResponseOf(err) != plugins.ResponseOf(was) ||
				plugins.Category(err) != plugins.Category(was) ||
				errors.Is(err, context.Canceled) != errors.Is(was, context.Canceled) {
				t.Errorf("%s: a mark is lost", name)
			}
		}
	}
	if plugins.Bound(nil) != nil {
		t.Error("nil is no error")
	}
}
