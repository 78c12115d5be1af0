//go:build unix

package router_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/deltarouter/deltarouter/internal/router"
	"github.com/deltarouter/deltarouter/test/logged"
	"github.com/deltarouter/deltarouter/test/must"
)

// TestStopWhileStarting: a stop ends a start that is blocked in a call without a context.
func TestStopWhileStarting(t *testing.T) {
	// Guarantee: start-ends
	path := filepath.Join(t.TempDir(), "config.yaml")
	must.Succeed(t, syscall.Mkfifo(path, 0o600))
	var j journal
	log := &logged.Buffer{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := router.Run(ctx, router.Options{
		Config: path, Components: components(&j), Log: slog.New(slog.NewTextHandler(log, nil)), Stdout: io.Discard,
	})
	if err != nil || !strings.Contains(log.String(), "stopped during the start") || !strings.Contains(log.String(), "did not end within") {
		t.Errorf("%v, and the log:\n%s", err, log)
	}
	// The abandoned start continues once the file has a writer. It reads the file once more, and
	// must not wait for another writer.
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	must.Succeed(t, err)
	must.Report(t, errors.Join(os.Remove(path), file.Close()))
}

// TestNoStateFile: a path that is no regular file is refused and does not block the start.
func TestNoStateFile(t *testing.T) {
	// Guarantee: start-ends
	dir := t.TempDir()
	for _, name := range []string{"state.db", "hash.key"} {
		must.Succeed(t, syscall.Mkfifo(filepath.Join(dir, name), 0o600))
		var j journal
		err := router.Run(t.Context(), router.Options{
			Config:     write(t, strings.Replace(fmt.Sprintf(running, kubeconfig(t), ""), "version: 1\n", "version: 1\nstate: {dir: "+dir+"}\n", 1)),
			Components: components(&j), Log: slog.New(slog.DiscardHandler), Stdout: io.Discard,
		})
		if err == nil || !strings.Contains(err.Error(), name+" is ") {
			t.Errorf("%s: %v", name, err)
		}
		must.Succeed(t, os.Remove(filepath.Join(dir, name)))
	}
}
