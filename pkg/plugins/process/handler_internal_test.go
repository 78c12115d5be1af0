package process

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pluginv1 "github.com/deltarouter/deltarouter/proto/plugin/v1"
)

// answers is a plugin that answers with an error after some time.
type answers struct {
	pluginv1.HandlerClient

	after time.Duration
	err   error
}

func (a answers) Handle(context.Context, *pluginv1.HandleRequest, ...grpc.CallOption) (*pluginv1.HandleResponse, error) {
	<-time.After(a.after)
	return nil, a.err
}

// TestWhoseDeadline: gRPC tells of a deadline before the router's own timer was looked at, or the plugin of one of its own. The first
// costs the process, whichever is seen first, the second only the batch.
func TestWhoseDeadline(t *testing.T) {
	const timeout = time.Second
	over := status.Error(codes.DeadlineExceeded, "stream terminated by RST_STREAM with error code: CANCEL")
	for _, tt := range []struct {
		after time.Duration
		lost  bool
	}{{timeout, true}, {timeout - 1, false}} {
		for range 50 { // which of two timers is first is random
			synctest.Test(t, func(t *testing.T) {
				h := &handler{s: &settings{Config: Config{Limits: Limits{Timeout: timeout}}}, sup: &supervisor{}}
				p := &process{s: h.s, api: answers{after: tt.after, err: over}, ctx: t.Context(), lost: make(chan struct{})}
				_, err := h.ask(t.Context(), p, &pluginv1.HandleRequest{})
				if errors.Is(err, errLost) != tt.lost || p.gone() != tt.lost || tt.lost && p.reason != "timeout" {
					t.Errorf("after %v: %v, lost: %v %s", tt.after, err, p.gone(), p.reason)
				}
			})
		}
	}
}
