package api

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/test/must"
)

// TestSilentClients: clients that send nothing do not keep others out, however long they may wait.
func TestSilentClients(t *testing.T) {
	// Guarantee: probes-bounded
	var log bytes.Buffer
	s := New(Config{Addr: "127.0.0.1:0", Log: slog.New(slog.NewTextHandler(&log, nil))})
	s.http.ReadHeaderTimeout, s.http.ReadTimeout = time.Hour, time.Hour // so that only the bound closes them
	must.Succeed(t, s.Start(t.Context()))
	var dialer net.Dialer
	for range 2 * maxProbes {
		conn, err := dialer.DialContext(t.Context(), "tcp", s.Addr())
		must.Succeed(t, err)
		defer conn.Close()
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.Addr()+"/healthz", http.NoBody)
	must.Succeed(t, err)
	response, err := new(http.Transport).RoundTrip(request)
	must.Succeed(t, err)
	body, err := io.ReadAll(response.Body)
	must.Succeed(t, err)
	must.Succeed(t, response.Body.Close())
	if string(body) != "ok\n" {
		t.Errorf("got %q", body)
	}
	ended, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	cancel() // the silent connections are cut off
	_ = s.Close(ended)
	if n := strings.Count(log.String(), "too many connections"); n != 1 {
		t.Errorf("%d warnings, want one in a minute:\n%s", n, log.String())
	}
}
