//go:build linux

package file_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/internal/pipeline"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
	"github.com/deltarouter/deltarouter/test/must"
)

// room limits the size of the files of this process. A write beyond it is partial and fails, as on
// a full disk.
func room(t *testing.T, bytes uint64) {
	t.Helper()
	var limit syscall.Rlimit
	must.Succeed(t, syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit))
	limit.Cur = min(bytes, limit.Max)
	must.Succeed(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit))
}

// limitedEnv marks the process that runs under the limit.
const limitedEnv = "DELTAROUTER_TEST_LIMITED"

// full runs the test in a separate process, because the limit applies to the whole process. It
// returns false in the parent.
func full(t *testing.T) bool {
	t.Helper()
	if os.Getenv(limitedEnv) == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.count=1", "-test.v")
		cmd.Env = append(os.Environ(), limitedEnv+"=1")
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
			t.Errorf("%v: %s", err, out)
		}
		return false
	}
	signal.Ignore(syscall.SIGXFSZ)
	t.Cleanup(func() { room(t, 1<<62) })
	return true
}

// TestFullDisk: for any position of the limit in a line, the complete lines are delivered, and no
// part of another line stays.
func TestFullDisk(t *testing.T) {
	// Guarantee: half-lines
	if !full(t) {
		return
	}
	path := filepath.Join(t.TempDir(), "events")
	s := open(t, fmt.Sprintf("{path: %q, fsync: true}", path))
	write(t, s, numbered(0, 1))
	line := uint64(len(numbered(0, 1)[0].AppendJSON(nil)) + 1)
	next := 1
	for _, more := range []uint64{0, 1, line / 2, line - 1, line, line + 1, 3*line - 1, 3 * line} {
		room(t, uint64(next)*line+more)
		errs := s.Write(t.Context(), numbered(next, 5))
		if len(errs) != 5 {
			t.Fatalf("%d results with room for %d bytes", len(errs), more)
		}
		delivered := 0
		for i, err := range errs {
			if err == nil {
				delivered++
			} else if plugins.ClassOf(err) == plugins.Rejected || i < delivered {
				t.Errorf("event %d: %v", i, err)
			}
		}
		if want := int(more / line); delivered != want {
			t.Errorf("%d delivered with room for %d bytes, want %d", delivered, more, want)
		}
		next += delivered
		equal(t, fmt.Sprintf("with room for %d bytes", more), ids(t, path), count(0, next))
	}
	room(t, 1<<62)
	write(t, s, numbered(next, 5))
	equal(t, "with room", ids(t, path), count(0, next+5))
}

// filling raises the limit a little after each failed write.
type filling struct {
	plugins.Sink
	t *testing.T

	mu     sync.Mutex
	room   uint64
	failed int
}

func (f *filling) Write(ctx context.Context, events []event.Event) []error {
	errs := f.Sink.Write(ctx, events)
	if errs != nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.failed++
		f.room += 777
		room(f.t, f.room)
	}
	return errs
}

// TestFullDiskThroughARoute: a disk that fills up repeatedly neither loses nor repeats an event.
func TestFullDiskThroughARoute(t *testing.T) {
	if !full(t) {
		return
	}
	path := filepath.Join(t.TempDir(), "events")
	f := &filling{Sink: open(t, fmt.Sprintf("path: %q", path)), t: t, room: 100}
	room(t, f.room)
	p, err := pipeline.New(pipeline.Config{Routes: []spec.Settings{{
		Name: "r", Sources: []string{"pods"}, Ops: event.Ops(), Batch: spec.Batch{Size: 8}, Concurrency: 2,
		Sinks: []spec.NamedSink{{Name: "log", Sink: f}}, Retry: spec.Retry{Backoff: time.Millisecond, Max: 5 * time.Millisecond},
	}}})
	must.Succeed(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	p.Start(ctx)
	const n = 100
	for i := range n {
		commit, err := p.Admit(ctx, &event.Delta{Source: "pods", Op: event.Added, New: plugintest.Pod(t, strconv.Itoa(i), i+1, 100), Seen: time.Now()})
		must.Succeed(t, err)
		commit.Commit()
	}
	must.Report(t, p.Drain(ctx))
	must.Report(t, p.Close(ctx))
	room(t, 1<<62)
	got := subjects(t, path)
	if len(got) != n || f.failed < 10 {
		t.Errorf("%d lines of %d after %d failures", len(got), n, f.failed)
	}
	for i := range n {
		if got["default/"+strconv.Itoa(i)] != 1 {
			t.Errorf("event %d is there %d times", i, got["default/"+strconv.Itoa(i)])
		}
	}
}

// TestTwoSinks: the second of two sinks with one file waits until the first is closed, as after a
// reload.
func TestTwoSinks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events")
	config := fmt.Sprintf("path: %q", path)
	first, second := open(t, config), open(t, config)
	write(t, first, numbered(0, 1))
	if errs := second.Write(t.Context(), numbered(1, 1)); errs == nil || plugins.ClassOf(errs[0]) == plugins.Rejected || !strings.Contains(errs[0].Error(), "another sink") {
		t.Errorf("the second: %v", errs)
	}
	write(t, first, numbered(1, 1))
	must.Report(t, first.Close(t.Context()))
	write(t, second, numbered(2, 1))
	equal(t, "the file", ids(t, path), count(0, 3))
}
