package extism_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/test/must"
)

// TestHostileGuests shows that a guest ends only its own call, at its limits, with a short error
// that can be printed, and that the next delta finds a working guest.
func TestHostileGuests(t *testing.T) {
	// Guarantee: hostile-guest, guest-memory
	const memory = 16 << 20
	for _, tt := range []struct{ action, want string }{
		{"load0", "load_u8: the address 0x0 is in no block"},
		{"loadfar", "load_u64: the address 0xfffffffffffffffc is in no block"},
		{"loadhuge", "load_u64: the address 0x10000000000 is in no block"},
		{"store0", "store_u8: the address 0x0 is in no block"},
		{"storefar", "store_u64: the address 0xfffffffffffffff8 is in no block"},
		{"storetop", "is in no block"},
		{"allocfar", "raise limits.memory"},
		{"allocround", "raise limits.memory"},
		{"allocall", "raise limits.memory"},
		{"alloctiny", "out of fuel"},
		{"allocfree", "out of fuel"},
		{"forged", ""},
		{"resets", "out of fuel"},
		{"output0", "malformed answer: its 10 bytes at 0x0 are in no block"},
		{"outputfar", "malformed answer"},
		{"outputsize", "limits.output"},
		{"outputhuge", "limits.output"},
		{"errorfar", "without a message"},
		{"errorhuge", "fail"},
		{"garbage", "malformed answer"},
		{"spin", "out of fuel"},
		{"logs", "out of fuel"},
		{"configs", "out of fuel"},
		{"requests", "http_request"},
		{"lookups", "lookup: not granted"},
		{"panic", "the guest trapped: unreachable"},
		{"exit", "exited with code 3"},
	} {
		t.Run(tt.action, func(t *testing.T) {
			h := newHost(t)
			handler := h.open(t, "limits: {memory: 16Mi, output: 64Ki, log: 10}, allow: {kv: true}")
			got := one(t, handler, tt.action)
			if !strings.HasPrefix(got, "fail ") || !strings.Contains(got, tt.want) || len(got) > 16<<10 || strings.ContainsAny(got, "\x00\x1b") || !utf8.ValidString(got) {
				t.Errorf("got %.300q, want %s", got, tt.want)
			}
			if n := testutil.ToFloat64(h.env.Metrics.(*metrics.Metrics).GuestMemory.WithLabelValues("notify")); n > memory {
				t.Errorf("the guest has %v bytes", n)
			}
			if got := one(t, handler, "bytes"); got != "ok /=true" {
				t.Errorf("the next delta: got %s", got)
			}
		})
	}
}

// TestTooLarge shows that a delta that does not fit is rejected, and the next one handled.
func TestTooLarge(t *testing.T) {
	h := newHost(t).open(t, "limits: {memory: 8Mi}")
	large := deltas(t, "bytes")
	large[0].New = pod(t, "bytes", 3<<20)
	results, err := h.Handle(t.Context(), large)
	must.Succeed(t, err)
	if got := describe(results[0]); !strings.Contains(got, "raise limits.memory, of which a quarter is for the deltas and answers") {
		t.Errorf("got %.300s", got)
	}
	if got := one(t, h, "bytes"); got != "ok /=true" {
		t.Errorf("the next delta: got %s", got)
	}
}

// TestMemoryReturns shows that the blocks of a large delta are not kept, and are counted.
func TestMemoryReturns(t *testing.T) {
	// Guarantee: guest-memory
	h := newHost(t)
	handler := h.open(t, "function: nothing, limits: {memory: 128Mi}")
	memory := func() float64 {
		return testutil.ToFloat64(h.env.Metrics.(*metrics.Metrics).GuestMemory.WithLabelValues("notify"))
	}
	small := deltas(t, "none")
	large := deltas(t, "none")
	large[0].New = pod(t, "none", 8<<20)
	for range 3 {
		_, err := handler.Handle(t.Context(), small)
		must.Succeed(t, err)
		before := memory()
		_, err = handler.Handle(t.Context(), large)
		must.Succeed(t, err)
		if after := memory(); after < before+7<<20 {
			t.Errorf("a delta of 8 MiB: from %v to %v bytes", before, after)
		}
	}
	_, err := handler.Handle(t.Context(), small)
	must.Succeed(t, err)
}
