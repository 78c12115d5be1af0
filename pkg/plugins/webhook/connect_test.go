package webhook_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// refusedSoon writes an event to a receiver that does not let anybody connect, with a request's timeout that is far away: the error says
// that connecting took too long.
func refusedSoon(t *testing.T, url, want string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	sink := open(t, fmt.Sprintf("{url: %q, connectTimeout: 50ms, timeout: 10m}", url))
	errs := sink.Write(ctx, []event.Event{sample(), sample()})
	if len(errs) != 2 || errs[0] == nil || errs[1] == nil || plugins.IsRejected(errs[0]) || !strings.Contains(errs[0].Error(), want) || ctx.Err() != nil {
		t.Errorf("got %v, want %q", errs, want)
	}
}

// TestNoHandshake: a receiver that takes the connection and says nothing is unavailable after connectTimeout.
func TestNoHandshake(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() // nobody accepts: the system does
	refusedSoon(t, "https://"+l.Addr().String(), "TLS handshake timeout")
}
