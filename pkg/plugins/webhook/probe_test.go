package webhook_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
	"github.com/deltarouter/deltarouter/pkg/plugins/webhook"
	"github.com/deltarouter/deltarouter/test/must"
)

// TestProbe: a probe connects and sends no request. Its errors do not contain the URL's secrets.
func TestProbe(t *testing.T) {
	// Guarantee: check-sends-nothing
	var requests, connections atomic.Int32
	count := func(s *httptest.Server) {
		s.Config.Handler = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests.Add(1) })
		s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
			if state == http.StateNew {
				connections.Add(1)
			}
		}
		t.Cleanup(s.Close)
	}
	plain, encrypted := httptest.NewUnstartedServer(nil), httptest.NewUnstartedServer(nil)
	count(plain)
	count(encrypted)
	plain.Start()
	encrypted.StartTLS()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	refuses := "http://u:s3cret@" + closed.Addr().String() + "/s3cret"
	must.Succeed(t, closed.Close())
	for _, c := range []struct {
		name, config, want string
		connects           bool
	}{
		{"there", fmt.Sprintf("url: %s/s3cret", plain.URL), "", true},
		{"a certificate that nobody vouches for", fmt.Sprintf("url: %s/s3cret", encrypted.URL), "certificate", true},
		{"refused", "url: " + refuses, "http://127.0.0.1:", false},
		{"no secret", "url: {file: " + filepath.Join(t.TempDir(), "none") + "}", "url: ", false},
		{"no header", fmt.Sprintf("{url: %s, headers: {a: {env: NO_SUCH_VARIABLE}}}", plain.URL), "header a: ", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := connections.Load()
			err := webhook.Kind().(plugins.Prober).Probe(t.Context(), plugintest.Node(t, c.config))
			if (err == nil) != (c.want == "") || err != nil && (!strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "s3cret")) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if !c.connects && connections.Load() != before {
				t.Error("it has connected")
			}
		})
	}
	plain.Close()
	encrypted.Close() // wait for its goroutines
	if requests.Load() != 0 || connections.Load() < 2 {
		t.Errorf("%d requests in %d connections", requests.Load(), connections.Load())
	}
}

// refusedSoon writes an event to a receiver that accepts no connection, with a long timeout for
// requests. The error must be the timeout of the connection.
func refusedSoon(t *testing.T, url, want string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	sink := open(t, fmt.Sprintf("{url: %q, connectTimeout: 50ms, timeout: 10m}", url))
	errs := sink.Write(ctx, []event.Event{sample(), sample()})
	if len(errs) != 2 || errs[0] == nil || errs[1] == nil || plugins.ClassOf(errs[0]) == plugins.Rejected || !strings.Contains(errs[0].Error(), want) || ctx.Err() != nil {
		t.Errorf("got %v, want %q", errs, want)
	}
}

// TestNoHandshake: a receiver that accepts the connection and sends nothing is unavailable after
// connectTimeout.
func TestNoHandshake(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	defer l.Close() // the system accepts the connection
	refusedSoon(t, "https://"+l.Addr().String(), "TLS handshake timeout")
}
