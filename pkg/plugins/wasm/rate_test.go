package wasm_test

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// TestRateWaits: requests above the rate of a host wait, and no period of a second has more of
// them.
func TestRateWaits(t *testing.T) {
	// Guarantee: guest-http-rate
	const rate, calls = 5, 40
	clock := timer.NewFake(time.Now())
	var mu sync.Mutex
	var sent []time.Time
	s := serve(t, func(http.ResponseWriter, *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		sent = append(sent, clock.Now())
	})
	h := newHost()
	h.env.Clock = clock
	handler := h.open(t, withRights(t, asking(`{"url":"`+s.URL+`"}`, 0), s.allow(", rate: 5")))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range calls {
			run(t, handler, first(t))
		}
	}()
	for waiting := true; waiting; {
		select {
		case <-done:
			waiting = false
		default:
			if at, ok := clock.Next(); ok {
				clock.Advance(at)
			}
		}
	}
	slices.SortFunc(sent, time.Time.Compare)
	if len(sent) != calls {
		t.Fatalf("%d requests were sent", len(sent))
	}
	for i := rate; i < calls; i++ {
		if took := sent[i].Sub(sent[i-rate]); took < time.Second {
			t.Errorf("%d requests were sent in %v", rate+1, took)
		}
	}
	if took := sent[calls-1].Sub(sent[0]); took != (calls/rate-1)*time.Second {
		t.Errorf("they took %v", took)
	}
}

// TestRateTooLow: if a request would wait longer than the call may, the failed deltas of the call
// are postponed until the rate allows it. That is no attempt. Deltas without a failure count.
func TestRateTooLow(t *testing.T) {
	// Guarantee: guest-http-rate
	s := serve(t, func(http.ResponseWriter, *http.Request) {})
	request := `{"url":"` + s.URL + `"}`
	trap := asking(request, 0)
	trap.function("rtr_handle").body = code(constant(opI32, 0x400000), constant(opI32, int64(len(request))), constant(opI32, 0x20008), constant(opI32, 1<<21),
		opCall, 0, constant(opI32, 0), 0x48 /* i32.lt_s */, opIf, empty, opUnreachable, opEnd, constant(opI64, 0))
	// The second request fails its delta by a record.
	fails := trap
	fails.funcs = slices.Clone(trap.funcs)
	answer := encode("", record{idx: 0, verdict: 3})
	fails.data = map[uint32][]byte{0x400000: []byte(request), 0x100: answer}
	fails.function("rtr_handle").body = code(constant(opI32, 0x400000), constant(opI32, int64(len(request))), constant(opI32, 0x20008), constant(opI32, 1<<21),
		opCall, 0, constant(opI32, 0), 0x48 /* i32.lt_s */, opIf, i64, constant(opI64, 0x100<<32|int64(len(answer))), 0x05 /* else */, constant(opI64, 0), opEnd)
	for name, m := range map[string]module{"a verdict": fails, "a trap": trap} {
		t.Run(name, func(t *testing.T) {
			h := newHost()
			clock := timer.NewFake(time.Now())
			h.env.Clock = clock
			handler := h.open(t, withRights(t, m, s.allow(", rate: 1")+", limits: {timeout: 900ms}"))
			run(t, handler, first(t))
			for range 4 {
				r := h.must(t, handler, first(t)...)[0]
				if r.Verdict != plugins.Retry || plugins.ClassOf(r.Err) != plugins.Postponed || plugins.RetryAfter(r.Err) != time.Second || !strings.Contains(r.Err.Error(), "allow.http.rate") {
					t.Fatalf("got %s: %v, again after %v", r.Verdict, r.Err, plugins.RetryAfter(r.Err))
				}
			}
			clock.Advance(clock.Now().Add(time.Second))
			run(t, handler, first(t))
		})
	}
	h := newHost()
	h.env.Clock = timer.NewFake(time.Now())
	handler := h.open(t, withRights(t, asking(request, -3), s.allow(", rate: 1")+", limits: {timeout: 900ms}"))
	h.must(t, handler, first(t)...)
	for i, r := range h.must(t, handler, first(t)...) {
		if r.Verdict != plugins.OK {
			t.Errorf("delta %d of a guest that is content: %s %v", i, r.Verdict, r.Err)
		}
	}
}
