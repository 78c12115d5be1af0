package api_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/internal/api"
	"github.com/deltarouter/deltarouter/test/leaks"
	"github.com/deltarouter/deltarouter/test/must"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// start serves until the end of the test and returns the URL.
func start(t *testing.T, cfg api.Config) string {
	t.Helper()
	cfg.Addr = "127.0.0.1:0"
	cfg.Log = slog.New(slog.DiscardHandler)
	s := api.New(cfg)
	must.Succeed(t, s.Start(t.Context()))
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		must.Report(t, s.Close(context.WithoutCancel(t.Context())))
	})
	return "http://" + s.Addr()
}

func request(t *testing.T, method, url string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	must.Succeed(t, err)
	response, err := http.DefaultClient.Do(r)
	must.Succeed(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	must.Succeed(t, err)
	return response, string(body)
}

func TestReady(t *testing.T) {
	// Guarantee: probes-bounded
	tests := map[string]struct {
		checks []api.Check
		status int
		body   string
	}{
		"no checks": {nil, 200, "ready\n"},
		"all well": {
			[]api.Check{{Name: "sources/pods", OK: true, Holds: true}, {Name: "pipeline", OK: true, Holds: true}},
			200,
			"ready\n",
		},
		"one syncing": {
			[]api.Check{{Name: "sources/nodes", OK: true}, {Name: "sources/pods", Holds: true, Message: "not synced: listing"}},
			503,
			"[-]sources/pods: not ok\nnot ready: waiting for sources/pods\n",
		},
		"forbidden does not hold": {
			[]api.Check{{Name: "sources/tokens", Message: "not synced: forbidden: may not list secrets"}, {Name: "sources/pods", OK: true, Holds: true}},
			200,
			"[-]sources/tokens: not ok\nready\n",
		},
		"two hold, one is named": {
			[]api.Check{{Name: "a", Holds: true, Message: "x"}, {Name: "b", Message: "y"}, {Name: "c", Holds: true}},
			503,
			"[-]a: not ok\n[-]b: not ok\n[-]c: not ok\nnot ready: waiting for a, c\n",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			url := start(t, api.Config{Checks: func() []api.Check { return tt.checks }})
			response, body := request(t, http.MethodGet, url+"/readyz")
			if response.StatusCode != tt.status || body != tt.body {
				t.Errorf("got %d\n%s\nwant %d\n%s", response.StatusCode, body, tt.status, tt.body)
			}
			if got := response.Header.Get("Content-Type"); got != "text/plain; charset=utf-8" {
				t.Error(got)
			}
		})
	}
}

// TestConnectionsAreBounded shows that the server limits the simultaneous connections of an
// address, closes those above the limit, and each after one request, and then serves others.
func TestConnectionsAreBounded(t *testing.T) {
	// Guarantee: probes-bounded
	const most = 64
	var serving, highest, served atomic.Int32
	var once sync.Once // later connections may reach the number again
	full, release := make(chan struct{}), make(chan struct{})
	address := strings.TrimPrefix(start(t, api.Config{Checks: func() []api.Check {
		n := serving.Add(1)
		for was := highest.Load(); n > was && !highest.CompareAndSwap(was, n); was = highest.Load() {
		}
		if n == most {
			once.Do(func() { close(full) })
		}
		<-release
		serving.Add(-1)
		return nil
	}}), "http://")
	var clients sync.WaitGroup
	for range 2 * most {
		var dialer net.Dialer
		conn, err := dialer.DialContext(t.Context(), "tcp", address)
		must.Succeed(t, err)
		_, _ = fmt.Fprint(conn, "GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n") // may be closed already
		clients.Go(func() {
			defer conn.Close()
			answer, _ := io.ReadAll(conn) // until the server closes the connection
			switch {
			case strings.HasPrefix(string(answer), "HTTP/1.1 200 OK\r\n"):
				served.Add(1)
			case len(answer) > 0:
				t.Errorf("got %q", answer)
			}
		})
	}
	<-full
	close(release)
	clients.Wait()
	if n := highest.Load(); n > most {
		t.Errorf("%d were served at the same time", n)
	}
	if n := served.Load(); n < most {
		t.Errorf("%d were served, want %d at least", n, most)
	}
	if response, _ := request(t, http.MethodGet, "http://"+address+"/readyz"); response.StatusCode != http.StatusOK {
		t.Errorf("the next request: %s", response.Status)
	}
}

func TestRoutes(t *testing.T) {
	url := start(t, api.Config{Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "up 1\n") })})
	tests := []struct {
		method, path string
		status       int
		body         string
	}{
		{"GET", "/healthz", 200, "ok\n"},
		{"HEAD", "/healthz", 200, ""},
		{"GET", "/healthz?verbose", 200, "ok\n"},
		{"GET", "/readyz", 200, "ready\n"},
		{"HEAD", "/readyz", 200, ""},
		{"GET", "/metrics", 200, "up 1\n"},
		{"POST", "/healthz", 405, "Method Not Allowed\n"},
		{"DELETE", "/readyz", 405, "Method Not Allowed\n"},
		{"PUT", "/metrics", 405, "Method Not Allowed\n"},
		{"GET", "/", 404, "404 page not found\n"},
		{"GET", "/healthz/x", 404, "404 page not found\n"},
		{"GET", "/debug/pprof/", 404, "404 page not found\n"},
	}
	for _, tt := range tests {
		response, body := request(t, tt.method, url+tt.path)
		if response.StatusCode != tt.status || body != tt.body {
			t.Errorf("%s %s: got %d %q, want %d %q", tt.method, tt.path, response.StatusCode, body, tt.status, tt.body)
		}
		if allow := response.Header.Get("Allow"); tt.status == 405 && allow != "GET, HEAD" {
			t.Errorf("%s %s: Allow is %q", tt.method, tt.path, allow)
		}
	}
}

func TestNoMetrics(t *testing.T) {
	if response, _ := request(t, http.MethodGet, start(t, api.Config{})+"/metrics"); response.StatusCode != http.StatusNotFound {
		t.Error(response.Status)
	}
}

func TestHugeHeaderIsRefused(t *testing.T) {
	address := strings.TrimPrefix(start(t, api.Config{}), "http://")
	var dialer net.Dialer
	conn, err := dialer.DialContext(t.Context(), "tcp", address)
	must.Succeed(t, err)
	defer conn.Close()
	must.Succeed(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	// The server may close the connection before the whole request is written.
	_, _ = fmt.Fprintf(conn, "GET /healthz HTTP/1.1\r\nHost: x\r\nX: %s\r\n\r\n", strings.Repeat("x", 64<<10))
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err == nil && !strings.Contains(line, "431") {
		t.Errorf("got %q", line)
	}
}

func TestAddressInUse(t *testing.T) {
	address := strings.TrimPrefix(start(t, api.Config{}), "http://")
	s := api.New(api.Config{Addr: address, Log: slog.New(slog.DiscardHandler)})
	err := s.Start(t.Context())
	must.Fail(t, err, fmt.Sprintf("listen.probes: cannot listen on %q, choose another address: another process listens there", address))
	if s.Addr() != "" || s.Close(t.Context()) != nil {
		t.Error("what was not started cannot be closed")
	}
}

func TestCloseWaitsAndGivesUp(t *testing.T) {
	entered := make(chan struct{})
	release := make(chan struct{})
	s := api.New(api.Config{
		Addr: "127.0.0.1:0", Log: slog.New(slog.DiscardHandler),
		Checks: func() []api.Check { close(entered); <-release; return nil },
	})
	must.Succeed(t, s.Start(t.Context()))
	failed := make(chan error, 1)
	go func() {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.Addr()+"/readyz", nil)
		if err == nil {
			var response *http.Response
			if response, err = http.DefaultClient.Do(r); err == nil {
				err = response.Body.Close()
			}
		}
		failed <- err
	}()
	<-entered
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	must.Fail(t, s.Close(ctx), "requests were cut off")
	if err := <-failed; err == nil {
		t.Error("the request was answered")
	}
	close(release)
	must.Report(t, s.Close(t.Context()))
	if err := s.Start(t.Context()); err == nil {
		t.Error("a closed server was started")
	}
}

func TestStartTwice(t *testing.T) {
	s := api.New(api.Config{Addr: "127.0.0.1:0", Log: slog.New(slog.DiscardHandler)})
	must.Succeed(t, s.Start(t.Context()))
	if err := s.Start(t.Context()); err == nil {
		t.Error("started twice")
	}
	must.Report(t, s.Close(t.Context()))
}
