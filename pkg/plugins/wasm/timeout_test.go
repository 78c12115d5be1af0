package wasm_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
	"github.com/deltarouter/deltarouter/pkg/plugins/wasm"
	"github.com/deltarouter/deltarouter/test/must"
)

// steps is a clock that advances by a step at each reading. One goroutine uses it at a time.
type steps struct {
	timer.Clock
	mu   sync.Mutex
	now  time.Time
	step time.Duration
}

func newSteps(step time.Duration) *steps {
	return &steps{Clock: timer.NewFake(time.Now()), now: time.Now(), step: step}
}

func (s *steps) Now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = s.now.Add(s.step)
	return s.now
}

// chase returns a guest that follows pointers through its memory: each load waits for the one
// before it. There are so many rounds of 1,000 loads through a cycle of as many cache lines.
func chase(lines int64, rounds int64) module {
	const base = 0x200000
	body := code(constant(opI32, base), opSet, 2, constant(opI32, rounds), opSet, 3, opLoop, empty, opGet, 2)
	for range 1000 {
		body = append(body, opLoad, 2, 0)
	}
	body = append(body, code(opSet, 2, opGet, 3, constant(opI32, -1), opAdd, 0x22 /* local.tee */, 3, opBrIf, 0, opEnd, constant(opI64, 0))...)
	m := guest(body)
	m.function("rtr_handle").locals = 2
	m.memory = append([]byte{0}, uleb(int(base+64*lines)>>16+1)...)
	line := func(index ...any) []byte { // its address
		return code(constant(opI32, base), code(index...), constant(opI32, 6), 0x74 /* shl */, opAdd)
	}
	init := code(opLoop, empty,
		line(opGet, 0), line(opGet, 0, constant(opI32, 1664525), opMul, constant(opI32, 1013904223), opAdd, constant(opI32, lines-1), 0x71 /* and */),
		0x36 /* store */, 2, 0,
		opGet, 0, constant(opI32, 1), opAdd, 0x22, 0, constant(opI32, lines), 0x49 /* lt_u */, opBrIf, 0, opEnd)
	m.funcs = append(m.funcs, function{name: "_initialize", locals: 1, body: init})
	return m
}

// TestTimeout: a guest that computes longer than its timeout ends, although it has much more fuel.
// The clock advances by 10 ms at each reading.
func TestTimeout(t *testing.T) {
	// Guarantee: guest-timeout
	handling := map[string]module{
		"a loop":        guest(forEver(), constant(opI64, 0)),
		"pointer chase": chase(1<<10, 1<<20),
	}
	alloc := guest(constant(opI64, 0))
	alloc.function("rtr_alloc").body = code(forEver(), constant(opI32, 0))
	handling["rtr_alloc"] = alloc
	for name, m := range handling {
		t.Run(name, func(t *testing.T) {
			h := newHost()
			h.env.Clock = newSteps(10 * time.Millisecond)
			handler := h.open(t, limited(t, m, "fuel: 10G, initTimeout: 1h"))
			before := h.fuel()
			r := h.must(t, handler, plugintest.Deltas(t)[:1]...)[0]
			if r.Verdict != plugins.Fail || !strings.Contains(fmt.Sprint(r.Err), "out of time: one delta takes longer than 1s: raise limits.timeout") {
				t.Errorf("got %s: %v", r.Verdict, r.Err)
			}
			// A hundred readings, with at most 40,000 between two.
			if used := h.fuel() - before; used > 100*50_000 {
				t.Errorf("it burnt %v", used)
			}
			if h.ended("timeout") != 1 {
				t.Error("no guest was replaced for its time")
			}
		})
	}
	t.Run("batch", func(t *testing.T) { // one of the deltas takes too long
		h := newHost()
		h.env.Clock = newSteps(10 * time.Millisecond)
		slow := guest(opGet, 0, opLoad, 2, 8, constant(opI32, 2), opGeU, opIf, empty, forEver(), opEnd, constant(opI64, 2))
		got := verdicts(h.must(t, h.open(t, limited(t, slow, "fuel: 10G, initTimeout: 1h")), plugintest.Deltas(t)...))
		if strings.Count(got, "drop") != len(plugintest.Deltas(t)) {
			t.Errorf("got %s", got)
		}
	})
}

// TestStartTimeout: the same for a start.
func TestStartTimeout(t *testing.T) {
	// Guarantee: guest-timeout
	initialize, section, config := guest(constant(opI64, 0)), guest(constant(opI64, 0)), guest(constant(opI64, 0))
	initialize.funcs = append(initialize.funcs, function{name: "_initialize", body: forEver()})
	section.funcs = append(section.funcs, function{body: forEver()})
	section.raw = map[byte][]byte{8: uleb(3)}
	config.funcs = append(config.funcs, function{name: "rtr_init", params: []byte{i32, i32}, results: []byte{i32}, body: code(forEver(), constant(opI32, 0))})
	for name, m := range map[string]module{"_initialize": initialize, "start section": section, "rtr_init": config} {
		t.Run(name, func(t *testing.T) {
			h := newHost()
			h.env.Clock = newSteps(10 * time.Millisecond)
			_, err := h.tryOpen(t, limited(t, m, "initFuel: 100G"))
			must.Fail(t, err, name+": out of time: its start takes longer than 5s: raise limits.initTimeout")
			if used := h.fuel(); used > 500*50_000 {
				t.Errorf("it burnt %v", used)
			}
		})
	}
}

// TestCanceled: a guest that is computing ends when its context is cancelled.
func TestCanceled(t *testing.T) {
	// Guarantee: guest-timeout
	h := newHost()
	looked := make(chan struct{})
	h.env.Clock = &looks{Clock: timer.Real(), looked: looked}
	handler := h.open(t, limited(t, guest(forEver(), constant(opI64, 0)), "fuel: 10G, timeout: 1h"))
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for range 20 { // until it computes
			<-looked
		}
		cancel()
		for range looked {
		}
	}()
	_, err := handler.Handle(ctx, plugintest.Deltas(t)[:1])
	close(looked)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if used := h.fuel(); used > 9e9 {
		t.Errorf("it went on for %v fuel", used)
	}
}

// looks is a clock that signals each reading.
type looks struct {
	timer.Clock
	looked chan struct{}
}

func (l *looks) Now() time.Time {
	select {
	case l.looked <- struct{}{}:
	default:
	}
	return l.Clock.Now()
}

// TestGuestsPause: Go's garbage collector, which stops all goroutines several times per cycle,
// completes while a guest is in one call without end (except for its fuel).
func TestGuestsPause(t *testing.T) {
	// Guarantee: guest-pauses
	endless := map[string]module{
		"a loop": guest(opLoop, empty, opBr, 0, opEnd, constant(opI64, 0)),
		"calls":  {},
	}
	calls := guest(opCall, 3, constant(opI64, 0)) // each level calls the next one twice
	for i := range 40 {
		calls.funcs = append(calls.funcs, function{body: code(opCall, uleb(4+i), opCall, uleb(4+i))})
	}
	calls.funcs = append(calls.funcs, function{})
	endless["calls"] = calls
	for name, m := range endless {
		t.Run(name, func(t *testing.T) {
			node := plugintest.Node(t, "{module: "+m.write(t)+", limits: {fuel: 10G, calls: 1, timeout: 10m}}")
			handler, err := wasm.Kind().Open(t.Context(), node, newHost().env)
			must.Succeed(t, err)
			defer handler.Close(t.Context())
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var running sync.WaitGroup
			began, ended := make(chan struct{}), make(chan struct{})
			running.Go(func() {
				close(began)
				// ends by cancel, or by its fuel
				_, _ = handler.Handle(ctx, plugintest.Deltas(t)[:1])
				close(ended)
			})
			<-began
			const enough = 3 // one may complete before the guest is called
			for cycles := range enough {
				runtime.GC()
				select {
				case <-ended:
					t.Fatalf("the collector came to its end %d times while the guest ran, want %d", cycles, enough)
				default:
				}
			}
			cancel()
			running.Wait()
		})
	}
}
