package client

import (
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/deltarouter/deltarouter/test/must"
)

// TestBodyIdle: a read that takes too long ends the request. The time between two reads does not
// count: a slow reader must not be taken for a silent API server.
func TestBodyIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const idle = time.Minute
		in, out := io.Pipe()
		b := NewBody(in, idle, func(err error) {
			if err != nil {
				_ = in.CloseWithError(err)
			}
		})
		send := func() { _, _ = out.Write([]byte("x")) }
		p := make([]byte, 1)
		for range 3 {
			go func() { time.Sleep(idle - time.Second); send() }()
			if _, err := b.Read(p); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * idle)
		}
		began := time.Now()
		if _, err := b.Read(p); !errors.Is(err, ErrSlow) || time.Since(began) != idle {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		_ = b.Close()
	})
}

// A header of 1 MiB in the answer of an API server is not read to its end.
func TestHostileHeaders(t *testing.T) {
	// Guarantee: headers-bounded
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Warning", strings.Repeat("x", 1<<20))
		_, _ = w.Write([]byte(`{"metadata":{"uid":"one"}}`))
	}))
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	kubeconfig(t, file, map[string]any{"server": server.URL}, map[string]any{"token": "secret"})
	reaches(t, looking(t, file), "headers exceeded")
}

// A compressed answer that was not requested is read as it arrives, and one in another encoding is
// an error.
func TestEncodedAnswers(t *testing.T) {
	read := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", r.URL.Query().Get("encoding"))
		out := gzip.NewWriter(w)
		for _, part := range []string{"one", "two"} {
			_, _ = out.Write([]byte(part))
			_ = out.Flush()
			w.(http.Flusher).Flush()
			<-read
		}
		_ = out.Close()
	}))
	t.Cleanup(server.Close)
	c, err := For(&rest.Config{Host: server.URL})
	must.Succeed(t, err)
	t.Cleanup(c.Close)
	resp, err := c.Get(t.Context(), "x", url.Values{"encoding": {"gzip"}}, AcceptObjects, time.Minute)
	must.Succeed(t, err)
	for _, want := range []string{"one", "two"} {
		got := make([]byte, 3)
		if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != want {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
		read <- struct{}{}
	}
	if rest, err := io.ReadAll(resp.Body); err != nil || len(rest) > 0 {
		t.Errorf("%q, %v", rest, err)
	}
	must.Succeed(t, resp.Body.Close())
	close(read)
	if _, err = c.Get(t.Context(), "x", url.Values{"encoding": {"br"}}, AcceptObjects, time.Minute); err == nil || !strings.Contains(err.Error(), `"br", which was not requested`) {
		t.Errorf("error %v", err)
	}
}

// A delay that the API server requests is obeyed up to a minute.
func TestRetryAfter(t *testing.T) {
	for header, want := range map[string]time.Duration{"5": 5 * time.Second, "600": time.Minute, "": 0, "-1": 0} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", header)
			w.WriteHeader(http.StatusServiceUnavailable)
		}))
		c, err := For(&rest.Config{Host: server.URL})
		must.Succeed(t, err)
		_, err = c.Get(t.Context(), "x", nil, AcceptObjects, time.Minute)
		if got := RetryAfter(err); err == nil || got != want {
			t.Errorf("Retry-After %q: %v after %v, want %v", header, got, err, want)
		}
		c.Close()
		server.Close()
	}
}
