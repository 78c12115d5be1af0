package rules_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/internal/pipeline/rules"
)

// TestLimitShare: the limits of a share have its keys together, and one each. Keys that are
// forgotten, expired or closed make room, also those of a limit that is idle.
func TestLimitShare(t *testing.T) {
	cfg := rules.LimitConfig{Every: time.Minute}
	share := rules.NewShare(10)
	a, b, other := rules.NewLimit(cfg, share, start), rules.NewLimit(cfg, share, start), rules.NewLimit(cfg, nil, start)
	expect := func(when string, inA, inB, forgotten int) {
		t.Helper()
		if n := b.TakeForgotten(); a.Len() != inA || b.Len() != inB || n != forgotten {
			t.Errorf("%s: %d and %d keys, %d forgotten, want %d, %d and %d", when, a.Len(), b.Len(), n, inA, inB, forgotten)
		}
	}
	for i := range 20 {
		other.Allow(fmt.Sprint(i), 1, start)
	}
	for i := range 8 {
		a.Allow(fmt.Sprint(i), 1, start)
	}
	now := start.Add(30 * time.Second)
	for i := range 5 {
		if b.Allow(fmt.Sprint(i), 1, now) == nil {
			t.Error("a new key does not pass")
		}
	}
	expect("full", 8, 2, 3)
	if bound, shared := b.Crowded(); bound != 10 || !shared {
		t.Errorf("crowded by %d, shared: %v", bound, shared)
	}
	if other.Len() != 20 {
		t.Errorf("a limit without the share has %d keys", other.Len())
	}
	a.MakeRoom(now)
	expect("nothing has expired", 8, 2, 0)
	now = start.Add(time.Minute)
	a.MakeRoom(now)
	expect("expired", 0, 2, 0)
	for i := range 20 {
		b.Allow(fmt.Sprint(i), 1, now)
	}
	expect("alone", 0, 10, 10) // 3 and 4 were there
	a.Allow("one", 1, now)
	expect("one each", 1, 10, 0)
	b.Close()
	for i := range 20 {
		a.Allow(fmt.Sprint(i), 1, now)
	}
	if a.Len() != 10 {
		t.Errorf("%d keys after the other limit has gone", a.Len())
	}
	a.Abandon()
	if share.Full() || a.Len() != 0 {
		t.Error("abandoned keys use the share")
	}
}
