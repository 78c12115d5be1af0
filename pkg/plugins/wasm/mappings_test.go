package wasm_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
	"github.com/deltarouter/deltarouter/test/must"
)

// mapped returns the mapped address space of the process in bytes. It contains the memory of a
// guest even if no metric counts it.
func mapped(t *testing.T) (sum uint64) {
	t.Helper()
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		t.Skip(err) // not Linux
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var from, to uint64
		if _, err := fmt.Sscanf(lines.Text(), "%x-%x ", &from, &to); err != nil {
			t.Fatalf("%q: %v", lines.Text(), err)
		}
		sum += to - from
	}
	must.Succeed(t, lines.Err())
	return sum
}

// noMoreMapped fails if a guest's memory of that size was mapped since before. It tolerates small
// mappings of Go's runtime.
func noMoreMapped(t *testing.T, before, memory uint64) {
	t.Helper()
	if now := mapped(t); now > before && now-before > memory/2 {
		t.Errorf("%d MiB more are mapped than before", (now-before)>>20)
	}
}

// TestFailedStartFreed: after a failed instantiation, in several ways, no memory is left.
func TestFailedStartFreed(t *testing.T) {
	// Guarantee: guest-freed
	const memory = 4 << 30 // no other mapping is so large
	trap := guest(constant(opI64, 0))
	trap.memory = append([]byte{0}, uleb(1000)...)
	trap.funcs = append(trap.funcs, function{body: code(
		constant(opI32, 0x20000), constant(opI32, 7), constant(opI32, 8<<20), 0xfc, 11, 0, opUnreachable)})
	trap.raw = map[byte][]byte{8: uleb(3)}
	exits := guest(constant(opI64, 0))
	exits.imports = []function{{module: "wasi_snapshot_preview1", name: "proc_exit", params: []byte{i32}}}
	exits.funcs = append(exits.funcs, function{body: code(constant(opI32, 3), opCall, 0)})
	exits.raw = map[byte][]byte{8: uleb(4)}
	beyond := guest(constant(opI64, 0))
	beyond.data = map[uint32][]byte{17 << 16: []byte("x")}
	for name, m := range map[string]module{"trap": trap, "exit": exits, "data beyond its memory": beyond} {
		t.Run(name, func(t *testing.T) {
			before := mapped(t)
			h := newHost()
			if _, err := h.tryOpen(t, fmt.Sprintf("{module: %q, limits: {memory: 4Gi, initFuel: 10M}}", m.write(t))); err == nil {
				t.Fatal("it starts")
			}
			checkGone(t, h)
			noMoreMapped(t, before, memory)
		})
	}
}

// TestFailedRestartFreed: a guest starts once and never again. Each delta is another attempt to
// start it.
func TestFailedRestartFreed(t *testing.T) {
	// Guarantee: guest-freed
	const memory, attempts = 4 << 30, 4 // too few to open the breaker
	m := guest(opUnreachable)
	m.imports = []function{named("kv_get")}
	m.data = map[uint32][]byte{0x100: []byte("x")}
	m.funcs = append(m.funcs, function{body: code(
		constant(opI32, 0x100), constant(opI32, 1), constant(opI32, 0x200), constant(opI32, 8), opCall, 0,
		constant(opI32, 0), 0x4e /* i32.ge_s */, opIf, empty, opUnreachable, opEnd)})
	m.raw = map[byte][]byte{8: uleb(4)}
	h := newHost()
	before := mapped(t)
	handler, err := h.tryOpen(t, withRights(t, m, "allow: {kv: true}, limits: {memory: 4Gi}"))
	must.Succeed(t, err)
	must.Succeed(t, h.env.KV.Commit([]plugins.KVWrite{{Key: "x", Value: []byte("y")}}, 1<<20))
	for range attempts {
		h.must(t, handler, plugintest.Deltas(t)[0])
	}
	noMoreMapped(t, before, memory)
	must.Report(t, handler.Close(context.WithoutCancel(t.Context())))
	checkGone(t, h)
}

// TestStartThatCannotBeKept: a guest is freed if the store is full when its start commits writes.
func TestStartThatCannotBeKept(t *testing.T) {
	// Guarantee: guest-freed
	m := guest(constant(opI64, 0))
	m.imports = []function{named("kv_set")}
	m.data = map[uint32][]byte{0x100: []byte("x")}
	m.funcs = append(m.funcs, function{name: "_initialize", body: code(
		constant(opI32, 0x100), constant(opI32, 1), constant(opI32, 0x100), constant(opI32, 1), constant(opI64, 0), opCall, 0, opDrop)})
	h := newHost()
	h.env.KV = fullKV{h.env.KV}
	if _, err := h.tryOpen(t, withRights(t, m, "allow: {kv: true}")); !errors.Is(err, plugins.ErrKVFull) {
		t.Errorf("got %v", err)
	}
	checkGone(t, h)
}

// fullKV has space when it is asked, and none when writes are committed.
type fullKV struct{ plugins.KV }

// Commit implements plugins.KV.
func (fullKV) Commit([]plugins.KVWrite, int64) error { return plugins.ErrKVFull }

// TestConflict: a call whose commit is refused because of a call in another process is postponed,
// which costs no attempt. The guest goes on.
func TestConflict(t *testing.T) {
	m := guest(
		constant(opI32, 0x100), constant(opI32, 1), constant(opI32, 0x100), constant(opI32, 1), constant(opI64, 0), opCall, 0, opDrop,
		constant(opI64, 0))
	m.imports = []function{named("kv_set")}
	m.data = map[uint32][]byte{0x100: []byte("x")}
	h := newHost()
	shared := &sharedKV{KV: h.env.KV, err: plugins.Postpone(errors.New("conflict"), time.Millisecond)}
	h.env.KV = shared
	handler, err := h.tryOpen(t, withRights(t, m, "allow: {kv: true}"))
	must.Succeed(t, err)
	for range 20 { // more failures than the circuit breaker needs
		results, err := handler.Handle(t.Context(), plugintest.Deltas(t)[:2])
		must.Succeed(t, err)
		for _, r := range results {
			if r.Verdict != plugins.Retry || plugins.ClassOf(r.Err) != plugins.Postponed || plugins.RetryAfter(r.Err) != time.Millisecond {
				t.Fatalf("got %v %v", r.Verdict, r.Err)
			}
		}
	}
	shared.err, shared.conflicts = nil, plugins.KVRepeats
	h.must(t, handler, plugintest.Deltas(t)[0]) // it is repeated at once
	if shared.revisions != 1 {
		t.Errorf("the commit has %d revisions, want that of the written value", shared.revisions)
	}
	must.Report(t, handler.Close(context.WithoutCancel(t.Context())))
}

// sharedKV refuses commits with err.
type sharedKV struct {
	plugins.KV

	err       error
	conflicts int // the number of commits with ErrKVConflict before err
	revisions int // of the last commit
}

// Read implements plugins.SharedKV.
func (s *sharedKV) Read(key string) (value []byte, revision uint64, ok bool) {
	value, ok = s.Get(key)
	return value, 1, ok
}

// CommitIf implements plugins.SharedKV.
func (s *sharedKV) CommitIf(writes []plugins.KVWrite, revisions map[string]uint64, limit int64) error {
	s.revisions = len(revisions)
	if s.conflicts > 0 {
		s.conflicts--
		return plugins.Postpone(plugins.ErrKVConflict, 0)
	}
	if s.err != nil {
		return s.err
	}
	return s.Commit(writes, limit)
}
