package sandboxtest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// faultTimeout bounds one request to etcd.
const faultTimeout = time.Minute

// mustBePrivate keeps a test from harming others.
func (s *Sandbox) mustBePrivate(tb testing.TB) {
	tb.Helper()
	if !s.private {
		tb.Fatal("sandboxtest: a fault needs a sandbox of its own: New instead of Start")
	}
}

// StopAPIServer stops the API server regularly: open watches end with EOF, then new connections are
// refused. etcd keeps running.
func (s *Sandbox) StopAPIServer(tb testing.TB) {
	tb.Helper()
	s.mustBePrivate(tb)
	err := s.apiserver.stop()
	s.apiserver = nil
	if err != nil {
		tb.Fatalf("sandboxtest: %v", err)
	}
}

// KillAPIServer ends the API server with SIGKILL: connections are reset.
func (s *Sandbox) KillAPIServer(tb testing.TB) {
	tb.Helper()
	s.mustBePrivate(tb)
	s.apiserver.kill()
	s.apiserver = nil
}

// StartAPIServer starts it again on the same port and data, and waits until it is ready. Its watch
// cache begins at etcd's present revision: a watch from an older resourceVersion gets 410, even if
// only other resources have changed since.
func (s *Sandbox) StartAPIServer(tb testing.TB) {
	tb.Helper()
	s.mustBePrivate(tb)
	if s.apiserver != nil {
		tb.Fatal("sandboxtest: the API server runs already")
	}
	if err := s.startAPIServer(); err != nil {
		tb.Fatalf("sandboxtest: %v", err)
	}
}

// RotateKeys restarts the API server with another certificate authority, and writes kubeconfigs
// with other credentials. Existing clients do not know it.
func (s *Sandbox) RotateKeys(tb testing.TB) {
	tb.Helper()
	s.StopAPIServer(tb)
	if err := os.RemoveAll(filepath.Join(s.dir, "keys")); err != nil {
		tb.Fatalf("sandboxtest: %v", err)
	}
	s.StartAPIServer(tb)
	if err := s.connect(); err != nil {
		tb.Fatalf("sandboxtest: %v", err)
	}
}

// CompactEtcd drops all history before the latest change, and returns its revision. A running API
// server still serves watches from its watch cache: to get 410 for sure, compact while it is
// stopped, or start it with the flag --watch-cache=false.
func (s *Sandbox) CompactEtcd(tb testing.TB) string {
	tb.Helper()
	s.mustBePrivate(tb)
	ctx, cancel := context.WithTimeout(tb.Context(), faultTimeout)
	defer cancel()
	var now struct{ Header struct{ Revision string } }
	// The smallest possible key; only the header of the answer matters.
	if err := s.etcdCall(ctx, "/v3/kv/range", map[string]any{"key": []byte{0}, "count_only": true}, &now); err != nil {
		tb.Fatalf("sandboxtest: %v", err)
	}
	rev := now.Header.Revision
	err := s.etcdCall(ctx, "/v3/kv/compaction", map[string]any{"revision": rev, "physical": true}, nil)
	if err != nil {
		tb.Fatalf("sandboxtest: %v", err)
	}
	return rev
}

// etcdCall uses etcd's JSON gateway, so that the package does not need etcd's client.
func (s *Sandbox) etcdCall(ctx context.Context, path string, in, out any) error {
	url, err := os.ReadFile(filepath.Join(s.dir, "etcd-url"))
	if err != nil {
		return err
	}
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSpace(string(url))+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	transport := &http.Transport{DisableKeepAlives: true} // leaves no goroutine behind
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("etcd %s: %s: %s", path, resp.Status, answer)
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(answer, out)
}

// SaveEtcd stops both servers, copies etcd's data, starts both again, and returns the copy.
func (s *Sandbox) SaveEtcd(tb testing.TB) string {
	tb.Helper()
	saved := tb.TempDir()
	s.withEtcdStopped(tb, func(data string) error { return os.CopyFS(saved, os.DirFS(data)) })
	return saved
}

// RestoreEtcd stops both servers, replaces etcd's data by a copy made by SaveEtcd, and starts both
// again: resourceVersions go back, as after a restored backup.
func (s *Sandbox) RestoreEtcd(tb testing.TB, saved string) {
	tb.Helper()
	s.withEtcdStopped(tb, func(data string) error {
		if err := os.RemoveAll(data); err != nil {
			return err
		}
		return os.CopyFS(data, os.DirFS(saved))
	})
}

// withEtcdStopped calls do with the folder of etcd's data. Afterwards both servers run.
func (s *Sandbox) withEtcdStopped(tb testing.TB, do func(data string) error) {
	tb.Helper()
	if s.apiserver != nil {
		s.StopAPIServer(tb)
	}
	s.mustBePrivate(tb)
	err := s.etcd.stop()
	s.etcd = nil
	if err != nil {
		tb.Fatalf("sandboxtest: %v", err)
	}
	if err := do(filepath.Join(s.dir, "etcd")); err != nil {
		tb.Fatalf("sandboxtest: %v", err)
	}
	if err := s.startEtcd(); err != nil {
		tb.Fatalf("sandboxtest: %v", err)
	}
	s.StartAPIServer(tb)
}
