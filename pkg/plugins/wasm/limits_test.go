package wasm_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
)

// ended returns the number of guests that were replaced for a reason.
func (h *host) ended(reason string) int {
	return int(testutil.ToFloat64(h.env.Metrics.(*metrics.Metrics).GuestsEnded.WithLabelValues(h.env.Name, reason)))
}

func limited(t *testing.T, m module, limits string) string {
	t.Helper()
	return fmt.Sprintf("{module: %q, limits: {%s}}", m.write(t), limits)
}

// forEver is an endless loop.
func forEver() []byte { return code(opLoop, empty, opBr, 0, opEnd) }

// turns is a loop with n iterations of five instructions, in local 2.
func turns(n int64) []byte {
	return code(constant(opI32, n), opSet, 2, opLoop, empty, opGet, 2, constant(opI32, -1), opAdd, 0x22 /* local.tee */, 2, opBrIf, 0, opEnd)
}

// straight is 2n instructions with a charge of their own, in which the guest never pauses: it returns
// before it is stopped.
func straight(n int) []byte {
	return code(constant(opI32, 1), opIf, empty, slices.Repeat(code(constant(opI32, 1), opDrop), n), opEnd)
}

// TestLimits reaches each limit of a delta, and compares the error.
func TestLimits(t *testing.T) {
	two := events(`{"data":1}`, `{"data":2}`)
	after := uint32(4 + 28)
	long := answering(encode(strings.Repeat("x", 100), record{verdict: 3, msgOff: after, msgLen: 100}))
	longType := events(`{"type":"` + strings.Repeat("t", 100) + `","data":1}`)
	grow := guest(constant(opI32, 10), opMemoryGrow, 0, constant(opI32, -1), opEq, opIf, empty, opUnreachable, opEnd, constant(opI64, 0))
	tests := []struct {
		name   string
		guest  module
		limits string
		want   string
		ended  string // the reason of the replacement; empty: the guest was not replaced
	}{
		{"fuel", guest(forEver(), constant(opI64, 0)), "", "one delta takes more than 75000000 instructions: raise limits.fuel", "fuel"},
		{"less fuel", guest(turns(10_000), constant(opI64, 0)), "fuel: 20k", "more than 20000 instructions", "fuel"},
		{"fuel up to a place without a pause", guest(turns(1400), straight(300), constant(opI64, 0)), "fuel: 10k", "more than 10000 instructions", "fuel"},
		{"memory", grow, "memory: 1536Ki", "trapped: unreachable", "trap"},
		{"stack", guest(opGet, 0, opGet, 1, opCall, 2), "", "nested too deeply", "stack"},
		{"output", guest(constant(opI64, 0x100<<32|2000)), "output: 1Ki", "2000 bytes, at most 1024 (limits.output)", ""},
		{"events", answering(encode(two, record{events: 2, emOff: after, emLen: uint32(len(two))})), "events: 1", "2 events for one delta, at most 1 (limits.events)", ""},
		{"message", long, "message: 16", strings.Repeat("x", 16-len("…")) + "…", ""},
		{"type", answering(encode(longType, record{events: 1, emOff: after, emLen: uint32(len(longType))})), "message: 16", "type has 100 bytes, at most 16 (limits.message)", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := newHost()
			handler := h.open(t, limited(t, tt.guest, tt.limits))
			for range 2 { // the second time with a new guest
				r := handle(t, handler, plugintest.Deltas(t)[:1])[0]
				if r.Verdict != plugins.Fail || !strings.Contains(fmt.Sprint(r.Err), tt.want) || !strings.HasPrefix(r.Err.Error(), `wasm "enrich": `) {
					t.Errorf("got %s: %v, want %q", r.Verdict, r.Err, tt.want)
				}
			}
			if tt.ended != "" && h.ended(tt.ended) == 0 {
				t.Errorf("no guest was replaced for its %s", tt.ended)
			}
		})
	}
}

// TestStartLimits reaches the limits of a start.
func TestStartLimits(t *testing.T) {
	init := func(body ...any) module {
		m := guest(constant(opI64, 0))
		m.funcs = append(m.funcs, function{name: "rtr_init", params: []byte{i32, i32}, results: []byte{i32}, locals: 1, body: code(body...)})
		return m
	}
	before := guest(constant(opI64, 0))
	before.funcs = append(before.funcs, function{name: "_initialize", body: forEver()})
	for name, tt := range map[string]struct {
		guest        module
		limits, want string
	}{
		"rtr_init":    {init(forEver(), constant(opI32, 0)), "", "its start takes more than 2000000000 instructions: raise limits.initFuel"},
		"_initialize": {before, "initFuel: 1M", "its start takes more than 1000000 instructions"},
		"enough":      {init(turns(100_000), constant(opI32, 0)), "initFuel: 1M", ""},
		"module":      {guest(bytes.Repeat([]byte{opNop}, 2000), constant(opI64, 0)), "module: 1Ki", "raise limits.module"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost()
			handler, err := h.tryOpen(t, limited(t, tt.guest, tt.limits))
			if err == nil {
				defer handler.Close(t.Context())
			}
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

// TestCallLimits: the size of a call, and the number of calls of an instance, are limited.
func TestCallLimits(t *testing.T) {
	// Traps if a call has more than one delta.
	alone := guest(opGet, 0, opLoad, 2, 8, constant(opI32, 2), opGeU, opIf, empty, opUnreachable, opEnd, constant(opI64, 2))
	var batch []*event.Delta
	for i := range 20 {
		batch = append(batch, &event.Delta{Source: "pods", Op: event.Added, New: plugintest.Pod(t, fmt.Sprint("p", i), 1, 3000)})
	}
	for _, limits := range []string{"batch: 1", "input: 4Ki"} {
		t.Run(limits, func(t *testing.T) {
			h := newHost()
			if got := verdicts(handle(t, h.open(t, limited(t, alone, limits)), batch)); got != strings.TrimSpace(strings.Repeat("drop ", 20)) {
				t.Errorf("got %s", got)
			}
			if h.ended("trap") != 0 {
				t.Error("a call had more than one delta")
			}
		})
	}
	t.Run("calls", func(t *testing.T) {
		h := newHost()
		handler := h.open(t, limited(t, alone, "batch: 1, calls: 5"))
		handle(t, handler, batch)
		if n := h.ended("calls"); n != 8 { // handle calls twice
			t.Errorf("%d instances were replaced after 5 calls each, of 40 calls", n)
		}
	})
	t.Run("instances", func(t *testing.T) {
		h := newHost()
		h.env.Workers = 8
		handler := h.open(t, limited(t, alone, "batch: 1, instances: 1"))
		done := make(chan struct{})
		for range 8 {
			go func() {
				defer func() { done <- struct{}{} }()
				if _, err := handler.Handle(t.Context(), batch); err != nil {
					t.Error(err)
				}
			}()
		}
		for range 8 {
			<-done
		}
		if m := h.memory(); m != 17*64<<10 {
			t.Errorf("%v bytes of memory are in use, want those of one instance", m)
		}
	})
}

// TestCallsByFuel: each delta uses a tenth of its fuel, so a call with all of them would exceed the
// fuel of a call.
func TestCallsByFuel(t *testing.T) {
	// About 1 M instructions per delta.
	m := guest(opGet, 0, opLoad, 2, 8, constant(opI32, 200_000), opMul, opSet, 2,
		opLoop, empty, opGet, 2, constant(opI32, -1), opAdd, 0x22 /* local.tee */, 2, opBrIf, 0, opEnd, constant(opI64, 2))
	h := newHost()
	handler := h.open(t, limited(t, m, "fuel: 10M"))
	var batch []*event.Delta
	for i := range 64 {
		batch = append(batch, &event.Delta{Source: "pods", Op: event.Added, New: plugintest.Pod(t, fmt.Sprint("p", i), 1, 10)})
	}
	for range 10 {
		if got := verdicts(handle(t, handler, batch)); strings.Count(got, "drop") != 64 {
			t.Fatalf("got %s", got)
		}
	}
	if n := h.ended("fuel"); n != 1 {
		t.Errorf("%d guests ran out of fuel, want just the first: what the others have to do is known then", n)
	}
	if used := testutil.ToFloat64(h.env.Metrics.(*metrics.Metrics).GuestFuel.WithLabelValues(h.env.Name)); used < 20*64*0.5e6 || used > 20*64*2e6 {
		t.Errorf("%v fuel was counted for 1,280 deltas of 1 M instructions", used)
	}
}

// TestLeftAlone: the circuit breaker opens for a guest that traps at everything.
func TestLeftAlone(t *testing.T) {
	h := newHost()
	handler := h.open(t, moduleYAML(t, guest(opUnreachable)))
	results := handle(t, handler, plugintest.Deltas(t))
	failed := 0
	for _, r := range results {
		switch {
		case r.Verdict == plugins.Fail:
			failed++
		case r.Verdict != plugins.Retry || plugins.ClassOf(r.Err) != plugins.Postponed || plugins.RetryAfter(r.Err) <= 0:
			t.Errorf("got %s: %v", r.Verdict, r.Err)
		case !strings.Contains(r.Err.Error(), "circuit breaker is open") || !strings.Contains(r.Err.Error(), "unreachable"):
			t.Errorf("the error does not say why: %v", r.Err)
		}
	}
	if failed > 6 { // some were handled before
		t.Errorf("%d deltas had a guest to break", failed)
	}
	if !strings.Contains(h.log.String(), "guests fail at every delta") {
		t.Errorf("the log is %s", h.log)
	}
}

// TestProbeTooMuch: a probe whose answer is too long shows that the guest works, so the circuit
// breaker closes.
func TestProbeTooMuch(t *testing.T) {
	h := newHost()
	clock := timer.NewFake(time.Now())
	h.env.Clock = clock
	handler := h.open(t, moduleYAML(t, guest(onDeleted(opUnreachable), opDrop, constant(opI64, 0x100<<32|2<<20))))
	pod := plugintest.Pod(t, "a", 1, 10)
	for range 6 {
		h.must(t, handler, &event.Delta{Source: "pods", Op: event.Deleted, Old: pod})
	}
	added := &event.Delta{Source: "pods", Op: event.Added, New: pod}
	if r := h.must(t, handler, added)[0]; r.Verdict != plugins.Retry {
		t.Fatalf("the circuit breaker is not open: %s: %v", r.Verdict, r.Err)
	}
	clock.Advance(clock.Now().Add(time.Minute))
	for range 2 {
		if r := h.must(t, handler, added)[0]; r.Verdict != plugins.Fail || plugins.ClassOf(r.Err) != plugins.Rejected {
			t.Errorf("got %s: %v", r.Verdict, r.Err)
		}
	}
}

// TestWornSoon: guests that use three quarters of their memory within a few calls open the circuit
// breaker, because each of them may use the limits of a start.
func TestWornSoon(t *testing.T) {
	for name, after := range map[string]int64{"at each call": 1, "at each third call": 3} {
		t.Run(name, func(t *testing.T) {
			h := newHost()
			h.env.Clock = timer.NewFake(time.Now())
			m := guest(constant(opI32, 0x100), constant(opI32, 0x100), opLoad, 2, 0, constant(opI32, 1), opAdd, 0x36 /* i32.store */, 2, 0,
				constant(opI32, 0x100), opLoad, 2, 0, constant(opI32, after), opEq, opIf, empty, constant(opI32, 40), opMemoryGrow, 0, opDrop, opEnd,
				constant(opI64, 0))
			handler := h.open(t, limited(t, m, "batch: 1, memory: 4Mi"))
			var batch []*event.Delta
			for i := range 64 {
				batch = append(batch, &event.Delta{Source: "pods", Op: event.Added, New: plugintest.Pod(t, fmt.Sprint("p", i), 1, 10)})
			}
			results := h.must(t, handler, batch...)
			if n := h.ended("memory"); n != 5 {
				t.Errorf("the circuit breaker opened after %d guests, want 5", n)
			}
			for i, r := range results {
				if handled := i < 5*int(after); handled != (r.Verdict == plugins.OK) || !handled && !strings.Contains(r.Err.Error(), "raise limits.memory") {
					t.Errorf("delta %d: got %s: %v", i, r.Verdict, r.Err)
				}
			}
		})
	}
}

// TestNativeStackCounts: the native stack of a deep recursion is counted with the memory of the
// guest.
func TestNativeStackCounts(t *testing.T) {
	// Guarantee: guest-memory
	m := guest(constant(opI32, 50_000), opCall, 3, constant(opI64, 0))
	m.funcs = append(m.funcs, function{params: []byte{i32}, body: code(opGet, 0, opIf, empty, opGet, 0, constant(opI32, -1), opAdd, opCall, 3, opEnd)})
	h := newHost()
	handler := h.open(t, moduleYAML(t, m))
	before := h.memory()
	if r := h.must(t, handler, plugintest.Deltas(t)[:1]...); r[0].Err != nil {
		t.Fatal(r[0].Err)
	}
	if more := h.memory() - before; more < 50_000*2*32 || more > 16<<20 {
		t.Errorf("%v bytes more are counted", more)
	}
}
