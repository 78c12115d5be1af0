package client

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
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
