//go:build unix

package process

import (
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/internal/lines"
	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
	"github.com/deltarouter/deltarouter/pkg/plugins/process/internal/child"
	"github.com/deltarouter/deltarouter/test/must"
)

// TestCopiedProgram: without files in memory, each start runs a copy that was hashed while it was
// written.
func TestCopiedProgram(t *testing.T) {
	// Guarantee: programs-pinned
	folder, err := os.MkdirTemp("", "p") //nolint:usetesting // the path of t.TempDir is too long for sockets
	must.Succeed(t, err)
	t.Cleanup(func() { os.RemoveAll(folder) })
	t.Setenv("TMPDIR", folder)
	self, err := os.Executable()
	must.Succeed(t, err)
	text, err := os.ReadFile(self)
	must.Succeed(t, err)
	sum := sha256.Sum256(text)
	file := filepath.Join(t.TempDir(), "plugin")
	if err := os.WriteFile(file, text, 0o700); err != nil { //nolint:gosec // it is a program
		t.Fatal(err)
	}
	env := plugins.HandlerEnv{Env: plugins.Env{Name: "legacy", Log: slog.New(slog.DiscardHandler)}}
	s := &settings{
		handlerConfig: handlerConfig{Command: []string{file, "sdk"}, TLS: true, Limits: limitsConfig{
			Batch: 10, Input: 1 << 20, Output: 1 << 20, Events: 10, Message: 1000, KV: 1 << 20,
			Timeout: time.Minute, StartTimeout: time.Minute, StopTimeout: time.Minute, Health: time.Hour, Breaker: 1,
		}},
		text: "null", node: config.Node{}, env: env, lines: lines.New(env.Log, 0, 100), clock: timer.Real(),
		memory: env.Count(plugins.GuestMemory), program: child.Copied(file, hex.EncodeToString(sum[:])),
	}
	h, err := newHandler(t.Context(), s)
	must.Succeed(t, err)
	copies, err := filepath.Glob(filepath.Join(folder, "deltarouter-plugin-*", "program"))
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
		must.Succeed(t, err)
		return results[0]
	}
	if r := handle("a"); r.Verdict != plugins.OK {
		t.Error(r.Err)
	}
	for { // the first loss causes a restart, whose failure opens the breaker
		if r := handle("crash"); plugins.ClassOf(r.Err) == plugins.Postponed && strings.Contains(r.Err.Error(), child.ErrAnother.Error()) {
			break
		}
	}
	must.Report(t, h.Close(t.Context()))
	if left, _ := filepath.Glob(filepath.Join(folder, "deltarouter-plugin-*")); len(left) > 0 {
		t.Error("there is left", left)
	}
}
