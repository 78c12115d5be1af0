//go:build unix

package process

import (
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/lines"
	"github.com/deltarouter/deltarouter/pkg/metrics"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
	"github.com/deltarouter/deltarouter/pkg/timer"
)

// TestCopiedProgram: where there are no files in memory, each start runs a copy of its own, which was hashed as it was made.
func TestCopiedProgram(t *testing.T) {
	folder, err := os.MkdirTemp("", "p") //nolint:usetesting // the path of t.TempDir is too long for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	t.Setenv("TMPDIR", folder)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(text)
	file := filepath.Join(t.TempDir(), "plugin")
	if err := os.WriteFile(file, text, 0o700); err != nil { //nolint:gosec // it is a program
		t.Fatal(err)
	}
	env := plugins.Env{Name: "legacy", Log: slog.New(slog.DiscardHandler), Metrics: metrics.New()}
	s := &settings{
		Config: Config{Command: []string{file, "sdk"}, TLS: true, Limits: Limits{
			Batch: 10, Input: 1 << 20, Output: 1 << 20, Events: 10, Message: 1000, KV: 1 << 20,
			Timeout: time.Minute, StartTimeout: time.Minute, StopTimeout: time.Minute, Health: time.Hour, Breaker: 1,
		}},
		text: "null", node: config.Node{}, env: env, lines: lines.New(env.Log, 0, 100), clock: timer.Real(),
		program: &program{file: file, sum: hex.EncodeToString(sum[:])},
	}
	h, err := newHandler(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	copies, err := filepath.Glob(filepath.Join(folder, folderPrefix+"*", "program"))
	if err != nil || len(copies) != 1 {
		t.Fatal(copies, err)
	}
	if info, err := os.Stat(copies[0]); err != nil || info.Mode().Perm() != 0o500 {
		t.Error(info.Mode(), err)
	}
	if err := os.WriteFile(file, []byte("#!/bin/sh\n"), 0o700); err != nil { //nolint:gosec // it is a program
		t.Fatal(err)
	}
	handle := func(name string) plugins.Result {
		batch := []*event.Delta{{Source: "pods", Op: event.Added, New: plugintest.Pod(t, name, 1, 1)}}
		results, err := h.Handle(t.Context(), batch)
		if err != nil {
			t.Fatal(err)
		}
		return results[0]
	}
	if r := handle("a"); r.Verdict != plugins.OK {
		t.Error(r.Err)
	}
	for { // the first loss is mended at once, and the breaker opens when that fails
		if r := handle("crash"); plugins.IsUnavailable(r.Err) && strings.Contains(r.Err.Error(), errAnother.Error()) {
			break
		}
	}
	if err := h.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if left, _ := filepath.Glob(filepath.Join(folder, folderPrefix+"*")); len(left) > 0 {
		t.Error("there is left", left)
	}
}

// TestNoExec: a copy that the system does not run names the remedy.
func TestNoExec(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "sub")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(folder, "program")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o400); err != nil { // as if it were mounted noexec
		t.Fatal(err)
	}
	err := newChild(&exec.Cmd{Path: path, Args: []string{path}}, folder, nil).Start(t.Context())
	if want := "permission denied: if " + filepath.Dir(folder) + " is mounted noexec, set TMPDIR to a folder that is not"; err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}
