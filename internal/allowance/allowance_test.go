package allowance_test

import (
	"context"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/internal/allowance"
	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/test/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// TestAllowance shows that an allowance returns with time, that a debt is bounded, and that owners
// are independent.
func TestAllowance(t *testing.T) {
	clock := timer.NewFake(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	owners := allowance.New(clock)
	a, b := owners.Of("a"), owners.Of("b")
	pass := func(d time.Duration) { clock.Advance(clock.Now().Add(d)) }
	left := func(step string, want int) {
		t.Helper()
		if got := a.Left(); got != want {
			t.Errorf("%s: %d left, want %d", step, got, want)
		}
	}
	left("full", allowance.PerSecond)
	a.Charge(allowance.PerSecond)
	left("spent", 0)
	pass(time.Second / 2)
	left("half a second later", allowance.PerSecond/2)
	a.Charge(100 * allowance.PerSecond)
	left("in debt", -10*allowance.PerSecond)
	pass(10 * time.Second)
	left("the debt is paid", 0)
	pass(time.Hour)
	left("idle", allowance.PerSecond)
	a.Charge(allowance.Price(7, time.Microsecond/10))
	left("the cost is more", allowance.PerSecond-7)
	a.Charge(allowance.Price(7, time.Second/8))
	left("the time is longer", allowance.PerSecond/2-7)
	if got := b.Left(); got != allowance.PerSecond {
		t.Errorf("the other owner has %d left", got)
	}
	if owners.Of("a") != a {
		t.Error("a reload makes another allowance of the same owner")
	}
}

// TestTurns shows that an owner has one turn of a kind, and that routes without an owner wait for
// none.
func TestTurns(t *testing.T) {
	owners := allowance.New(timer.NewFake(time.Now()))
	done, cancel := context.WithCancel(t.Context())
	cancel()
	turn := owners.Of("a").Evaluating()
	if !turn.Take(t.Context()) || turn.Take(done) {
		t.Error("two have the turn")
	}
	if !owners.Of("a").Rescanning().Take(t.Context()) || !owners.Of("b").Evaluating().Take(t.Context()) {
		t.Error("another turn is not free")
	}
	turn.Give()
	if !turn.Take(t.Context()) {
		t.Error("the turn was not given back")
	}
	free := owners.Of("").Evaluating()
	for range 2 {
		if !free.Take(t.Context()) {
			t.Error("a route without an owner waits")
		}
	}
	if free.Take(done) {
		t.Error("a canceled caller has the turn")
	}
	var none *allowance.Owners
	none.Of("a").Charge(1)
}
