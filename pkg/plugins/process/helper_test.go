package process_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/internal/kv"
	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
	"github.com/deltarouter/deltarouter/pkg/plugins/process"
	"github.com/deltarouter/deltarouter/test/effort"
	"github.com/deltarouter/deltarouter/test/logged"
	"github.com/deltarouter/deltarouter/test/must"
)

// bench is the environment of a handler in a test.
type bench struct {
	t       testing.TB
	folder  string // contains the folders of the handler
	log     *logged.Buffer
	memory  *kv.Store
	env     plugins.HandlerEnv
	handler plugins.Handler
	before  int // the number of open descriptors at the start
	shared  bool
}

// newBench returns a bench with a temporary folder.
func newBench(t testing.TB) *bench {
	t.Helper()
	folder := newFolder(t)
	t.Cleanup(func() { os.RemoveAll(folder) })
	t.Setenv("TMPDIR", folder)
	return benchIn(t, folder)
}

// newFolder makes a temporary folder. Its name is short because it contains sockets.
func newFolder(t testing.TB) string {
	t.Helper()
	folder, err := os.MkdirTemp("", "p") //nolint:usetesting // the path of t.TempDir is too long for sockets
	must.Succeed(t, err)
	return folder
}

// waiting are the tests that run at the same time, because they wait most of their time.
var waiting struct {
	mu     sync.Mutex
	tests  int
	tmp    string // TMPDIR before them
	folder string
	before int
}

// newSharedBench returns a bench for a test that runs at the same time as others of its kind. What
// they have left is found when none of them runs.
func newSharedBench(t *testing.T) *bench {
	t.Helper()
	t.Parallel()
	waiting.mu.Lock()
	defer waiting.mu.Unlock()
	if waiting.tests++; waiting.tests == 1 {
		waiting.folder, waiting.tmp, waiting.before = newFolder(t), os.Getenv("TMPDIR"), descriptors(t)
		must.Succeed(t, os.Setenv("TMPDIR", waiting.folder)) //nolint:usetesting // it is for all of them
	}
	b := benchIn(t, waiting.folder)
	b.shared, b.before = true, waiting.before
	t.Cleanup(func() {
		waiting.mu.Lock()
		defer waiting.mu.Unlock()
		if waiting.tests--; waiting.tests == 0 {
			b.nothingLeft()
			must.Report(t, errors.Join(os.Setenv("TMPDIR", waiting.tmp), os.RemoveAll(waiting.folder))) //nolint:usetesting // it was for all of them
		}
	})
	return b
}

func benchIn(t testing.TB, folder string) *bench {
	t.Helper()
	b := &bench{t: t, before: descriptors(t), folder: folder, log: &logged.Buffer{}, memory: kv.New(timer.NewFake(time.Now()), false)}
	b.env = plugins.HandlerEnv{Env: plugins.Env{
		Name: "legacy", Cluster: "test", Log: slog.New(slog.NewTextHandler(b.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Metrics: metrics.New(), KV: b.memory,
	}, Workers: 4, Lookup: caches{}}
	return b
}

// programYAML returns the YAML of a handler that runs this binary in a role.
func programYAML(role, more string) string {
	file, sum := self()
	if effort.Race && !strings.Contains(more, "env:") { // else each end of the plugin takes a second
		more += "\nenv: {GORACE: atexit_sleep_ms=0}"
	}
	// role may contain arguments after commas
	return fmt.Sprintf("command: [%q, %s]\nsha256: %s\n%s", file, role, sum, more)
}

func (b *bench) tryOpen(role, more string) (plugins.Handler, error) {
	return process.Kind().Open(b.t.Context(), plugintest.Node(b.t, programYAML(role, more)), b.env)
}

func (b *bench) open(more string) plugins.Handler { return b.openRole("sdk", more) }

func (b *bench) openRole(role, more string) plugins.Handler {
	b.t.Helper()
	h, err := b.tryOpen(role, more)
	if err != nil {
		b.t.Fatalf("open: %v\n%s", err, b.log)
	}
	b.handler = h
	return h
}

func (b *bench) close() {
	b.t.Helper()
	if err := b.handler.Close(b.t.Context()); err != nil {
		b.t.Errorf("Close: %v", err)
	}
	if !b.shared {
		b.nothingLeft()
	}
}

// nothingLeft checks that no process, folder or descriptor is left.
func (b *bench) nothingLeft() {
	b.t.Helper()
	if left := folders(b.t, b.folder); len(left) > 0 {
		b.t.Errorf("folders are left: %q", left)
	}
	if left := children(b.t); len(left) > 0 {
		b.t.Errorf("processes are left: %v", left)
	}
	eventually(b.t, "no descriptor is left", func() bool { return descriptors(b.t) <= b.before })
}

func folders(t testing.TB, in string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(in, "deltarouter-plugin-*"))
	must.Succeed(t, err)
	return found
}

// children returns the child processes of this one, zombies included.
func children(t testing.TB) (pids []int) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	must.Succeed(t, err)
	for _, file := range stats {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		var pid, parent int
		var state string
		after := text[bytes.LastIndexByte(text, ')')+1:]
		if _, err := fmt.Sscan(string(after), &state, &parent); err != nil || parent != os.Getpid() {
			continue
		}
		if _, err := fmt.Sscan(filepath.Base(filepath.Dir(file)), &pid); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

func descriptors(t testing.TB) int {
	t.Helper()
	found, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skipf("SKIPPED: no /proc: %v", err)
	}
	return len(found)
}

// deltas returns a batch of pods with these names.
func deltas(t testing.TB, names ...string) []*event.Delta {
	t.Helper()
	batch := make([]*event.Delta, len(names))
	for i, name := range names {
		batch[i] = &event.Delta{Source: "pods", Op: event.Added, New: plugintest.Pod(t, name, i+1, 20)}
	}
	return batch
}

// handle passes a batch to the handler and returns a line per result.
func (b *bench) handle(names ...string) []string {
	b.t.Helper()
	results, err := b.handler.Handle(b.t.Context(), deltas(b.t, names...))
	if err != nil {
		b.t.Fatalf("Handle: %v\n%s", err, b.log)
	}
	lines := make([]string, len(results))
	for i, r := range results {
		lines[i] = r.Verdict.String()
		if r.Err != nil {
			lines[i] += " " + r.Err.Error()
		}
		for _, e := range r.Events {
			lines[i] += " " + string(e.Data)
		}
	}
	return lines
}

// caches contains two pods on the node n1, and the node.
type caches struct{}

var pods = &event.Resource{Cluster: "test", Kind: "Pod"}

func object(name string) *event.Object {
	o, err := event.ParseObject(pods, fmt.Sprintf(`{"metadata":{"name":%q,"uid":%q,"resourceVersion":"1"}}`, name, name))
	if err != nil {
		return nil
	}
	return o
}

func (caches) Lookup(source, index, value string) []*event.Object {
	if source == "pods" && index == "byNode" && value == "n1" {
		return []*event.Object{object("a"), object("b")}
	}
	return nil
}

func (c caches) Count(source, index, value string) int { return len(c.Lookup(source, index, value)) }

func (caches) Get(source, namespace, name string) *event.Object {
	if source == "nodes" && namespace == "" && name == "n1" {
		return object("n1")
	}
	return nil
}

// contains fails the test unless text contains each part.
func contains(t testing.TB, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not in: %s", part, text)
		}
	}
}

var longAgo = time.Now().Add(-24 * time.Hour)
