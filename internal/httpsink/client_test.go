package httpsink_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/internal/httpsink"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/test/must"
)

// TestHeader shows that values are read, and that the error names the header.
func TestHeader(t *testing.T) {
	var c struct {
		Headers map[string]config.Secret `yaml:"headers"`
	}
	node, _ := config.ParseNode("test.yaml", []byte("headers: {host: a, x-Key: b}"))
	if problems := node.Decode(&c); problems != nil {
		t.Fatal(problems)
	}
	h, err := httpsink.Header(c.Headers)
	if err != nil || h.Get("Host") != "a" || h.Get("X-Key") != "b" {
		t.Errorf("got %v, %v", h, err)
	}
	node, _ = config.ParseNode("test.yaml", []byte("headers: {x-key: {file: /does/not/exist}}"))
	if problems := node.Decode(&c); problems != nil {
		t.Fatal(problems)
	}
	if _, err = httpsink.Header(c.Headers); err == nil || !strings.HasPrefix(err.Error(), "header x-key: ") {
		t.Error(err)
	}
}

// TestClient shows that the client follows no redirect, and reads only the beginning of a body,
// even of an endless one.
func TestClient(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/":
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(http.StatusFound)
		case "/elsewhere":
			t.Error("a redirect was followed")
		case "/short":
			_, _ = io.WriteString(w, "said")
		case "/long":
			_, _ = io.WriteString(w, strings.Repeat("x", 2*httpsink.MaxAnswer))
		case "/endless":
			_, _ = io.WriteString(w, "said")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}
	}))
	defer s.Close()
	client := httpsink.NewClient(nil, time.Minute)
	defer client.CloseIdleConnections()
	for path, want := range map[string]struct {
		status, size int
		whole        bool
	}{
		"/": {http.StatusFound, 0, true}, "/short": {200, 4, true}, "/long": {200, httpsink.MaxAnswer, false}, "/endless": {200, 4, false},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		req, _ := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+path, nil)
		resp, err := client.Do(req)
		must.Succeed(t, err)
		text, whole := httpsink.Drain(resp, cancel)
		if resp.StatusCode != want.status || len(text) != want.size || whole != want.whole {
			t.Errorf("%s: %d with %d bytes, whole %v; want %+v", path, resp.StatusCode, len(text), whole, want)
		}
		_ = resp.Body.Close()
		cancel()
	}
}

// TestProbe shows that a listening host is reached, and that the error names the host without the
// rest of the URL.
func TestProbe(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	u := &url.URL{Scheme: "http", Host: l.Addr().String(), Path: "/secret"}
	must.Report(t, httpsink.Probe(t.Context(), u, nil))
	_ = l.Close()
	if err := httpsink.Probe(t.Context(), u, nil); err == nil || !strings.HasPrefix(err.Error(), "http://"+u.Host+": ") || strings.Contains(err.Error(), "secret") {
		t.Error(err)
	}
}
