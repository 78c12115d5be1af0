package process

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/deltarouter/deltarouter/pkg/plugins/process/internal/child"
	pluginv1 "github.com/deltarouter/deltarouter/sdk/proto/plugin/v1"
)

// answers is a plugin that returns an error after a delay.
type answers struct {
	pluginv1.HandlerClient

	after time.Duration
	err   error
}

func (a answers) Handle(context.Context, *pluginv1.HandleRequest, ...grpc.CallOption) (*pluginv1.HandleResponse, error) {
	<-time.After(a.after)
	return nil, a.err
}

// TestWhoseDeadline: gRPC may report a deadline before the router's own timer expires, or the
// plugin may report one of its own. The router's deadline ends the process, regardless of the
// order. The plugin's deadline fails only the batch.
func TestWhoseDeadline(t *testing.T) {
	// Guarantee: plugin-crash
	const timeout = time.Second
	over := status.Error(codes.DeadlineExceeded, "stream terminated by RST_STREAM with error code: CANCEL")
	for _, tt := range []struct {
		after time.Duration
		lost  bool
	}{{timeout, true}, {timeout - 1, false}} {
		for range 50 { // the order of two timers is random
			synctest.Test(t, func(t *testing.T) {
				h := &handler{s: &settings{handlerConfig: handlerConfig{Limits: limitsConfig{Timeout: timeout}}}, sup: &supervisor{}}
				p := &process{s: h.s, api: answers{after: tt.after, err: over}, ctx: t.Context(), lost: make(chan struct{})}
				_, err := h.ask(t.Context(), p, &pluginv1.HandleRequest{})
				if errors.Is(err, errLost) != tt.lost || p.gone() != tt.lost || tt.lost && p.reason != "timeout" {
					t.Errorf("after %v: %v, lost: %v %s", tt.after, err, p.gone(), p.reason)
				}
			})
		}
	}
}

// TestCause: a call that fails because the plugin has ended, or the time is over, has that error,
// even if the call fails a moment earlier.
func TestCause(t *testing.T) {
	why := errors.New("it has ended")
	for _, tt := range []struct {
		err  error
		told time.Duration // the delay of the cause; 0: there is none
		want error
	}{
		{nil, time.Millisecond, nil},
		{fmt.Errorf("calling: %w", cleanStatus(status.Error(codes.Unavailable, "EOF"))), child.DrainTime - 1, why},
		{cleanStatus(status.Error(codes.DeadlineExceeded, "RST_STREAM")), time.Millisecond, why},
		{status.Error(codes.DeadlineExceeded, "its own"), 0, nil},
		{errors.New("its health"), time.Millisecond, nil}, // not waited for
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			if tt.told > 0 {
				time.AfterFunc(tt.told, func() { cancel(why) })
			}
			want := tt.want
			if want == nil {
				want = tt.err
			}
			if err := cause(ctx, tt.err); !errors.Is(err, want) || err != nil && errors.Is(err, why) != (tt.want != nil) {
				t.Errorf("%v: got %v, want %v", tt.err, err, want)
			}
		})
	}
}
