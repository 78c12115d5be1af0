package plugins_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/deltarouter/deltarouter/pkg/plugins"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestErrors(t *testing.T) {
	cause := errors.New("cause")
	for _, c := range []struct {
		name     string
		err      error
		rejected bool
		after    time.Duration
	}{
		{"plain", cause, false, 0},
		{"rejected", plugins.Reject(cause), true, 0},
		{"rejected, wrapped", fmt.Errorf("sink: %w", plugins.Reject(cause)), true, 0},
		{"later", plugins.RetryLater(cause, time.Minute), false, time.Minute},
		{"later, wrapped", fmt.Errorf("sink: %w", plugins.RetryLater(cause, time.Minute)), false, time.Minute},
		{"postponed, wrapped", fmt.Errorf("sink: %w", plugins.Postpone(cause, time.Minute)), false, time.Minute},
		{"pause", plugins.Pause(cause), false, 0},
		{"both", plugins.Reject(plugins.RetryLater(cause, time.Second)), true, time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := plugins.IsRejected(c.err); got != c.rejected {
				t.Errorf("rejected: %v", got)
			}
			if got := plugins.RetryAfter(c.err); got != c.after {
				t.Errorf("retry after %v", got)
			}
			if !errors.Is(c.err, cause) || c.err.Error() != "cause" && c.err.Error() != "sink: cause" {
				t.Errorf("the cause is lost: %v", c.err)
			}
		})
	}
	pause, postponed := fmt.Errorf("sink: %w", plugins.Pause(cause)), fmt.Errorf("sink: %w", plugins.Postpone(cause, 0))
	if !plugins.IsPause(pause) || plugins.IsPause(postponed) || plugins.IsPostponed(pause) || !plugins.IsPostponed(postponed) {
		t.Error("a pause is taken for what is postponed, or the other way round")
	}
	if plugins.IsRejected(nil) || plugins.RetryAfter(nil) != 0 {
		t.Error("no error is neither")
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
