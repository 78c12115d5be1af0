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
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/deltarouter/deltarouter/pkg/api"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start serves until the test is over and returns the URL.
func start(t *testing.T, cfg api.Config) string {
	t.Helper()
	cfg.Addr = "127.0.0.1:0"
	cfg.Log = slog.New(slog.DiscardHandler)
	s := api.New(cfg)
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		if err := s.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return "http://" + s.Addr()
}

func request(t *testing.T, method, url string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response, string(body)
}

func TestReady(t *testing.T) {
	long := strings.Repeat("ü", 2000)
	tests := map[string]struct {
		checks []api.Check
		status int
		body   string
	}{
		"no checks": {nil, 200, "ready\n"},
		"all well": {
			[]api.Check{{Name: "sources/pods", OK: true, Holds: true}, {Name: "pipeline", OK: true, Holds: true}},
			200,
			"[+]sources/pods: ok\n[+]pipeline: ok\nready\n",
		},
		"one syncing": {
			[]api.Check{{Name: "sources/nodes", OK: true}, {Name: "sources/pods", Holds: true, Message: "not synced: listing"}},
			503,
			"[+]sources/nodes: ok\n[-]sources/pods: not synced: listing\nnot ready: waiting for sources/pods\n",
		},
		"forbidden does not hold": {
			[]api.Check{{Name: "sources/tokens", Message: "not synced: forbidden: may not list secrets"}, {Name: "sources/pods", OK: true, Holds: true}},
			200,
			"[-]sources/tokens: not synced: forbidden: may not list secrets\n[+]sources/pods: ok\nready\n",
		},
		"two hold, one is named": {
			[]api.Check{{Name: "a", Holds: true, Message: "x"}, {Name: "b", Message: "y"}, {Name: "c", Holds: true}},
			503,
			"[-]a: x\n[-]b: y\n[-]c: not ok\nnot ready: waiting for a, c\n",
		},
		"lines stay lines": {
			[]api.Check{{Name: "a", Message: "one\n[+]b: ok\r\n two"}, {Name: "c", Message: long}},
			200,
			"[-]a: one [+]b: ok two\n[-]c: " + long[:1024] + "…\nready\n",
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
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	// The server may hang up before all is written.
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
	if err == nil || !strings.HasPrefix(err.Error(), fmt.Sprintf("listen.probes: cannot listen on %q, choose another address: ", address)) {
		t.Error(err)
	}
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
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
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
	if err := s.Close(ctx); err == nil || !strings.Contains(err.Error(), "requests were cut off") {
		t.Error(err)
	}
	if err := <-failed; err == nil {
		t.Error("the request was answered")
	}
	close(release)
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if err := s.Start(t.Context()); err == nil {
		t.Error("a closed server was started")
	}
}

func TestStartTwice(t *testing.T) {
	s := api.New(api.Config{Addr: "127.0.0.1:0", Log: slog.New(slog.DiscardHandler)})
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err == nil {
		t.Error("started twice")
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
