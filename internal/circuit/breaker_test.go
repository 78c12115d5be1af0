package circuit_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/deltarouter/deltarouter/internal/backoff"
	"github.com/deltarouter/deltarouter/internal/circuit"
	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/test/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// machine is a breaker with a model of it and running calls.
type machine struct {
	clock   *timer.Fake
	breaker *circuit.Breaker
	calls   []circuit.Permit // running

	failures, trips int
	until           time.Time
	probing         bool
	err             error
	changed         <-chan struct{}
	told            bool // changed must be closed
}

const failures = 3

var pauses = backoff.Policy{Min: time.Second, Max: 10 * time.Second, Exact: true}

func (m *machine) allow(t *rapid.T) {
	p, s := m.breaker.Allow()
	want, until := circuit.Granted, time.Time{}
	switch {
	case m.trips == 0:
	case m.probing:
		want, until = circuit.Refused, m.clock.Now().Add(circuit.ProbeTime)
	case m.clock.Now().Before(m.until):
		want, until = circuit.Refused, m.until
	default:
		want, until = circuit.Probe, m.clock.Now().Add(pauses.Min)
		m.probing, m.told = true, true
	}
	if p != want || !s.Until.Equal(until) || s.Open != (m.trips > 0) {
		t.Fatalf("got %v, open %v until %v; want %v until %v", p, s.Open, s.Until, want, until)
	}
	if p != circuit.Refused {
		m.calls = append(m.calls, p)
	}
}

// end removes a running call and reports whether it was the probe.
func (m *machine) end(t *rapid.T) (p circuit.Permit, probe bool) {
	if len(m.calls) == 0 {
		t.Skip("no call is under way")
	}
	i := rapid.IntRange(0, len(m.calls)-1).Draw(t, "call")
	p = m.calls[i]
	m.calls = append(m.calls[:i], m.calls[i+1:]...)
	if probe = p == circuit.Probe && m.probing; probe {
		m.probing, m.told = false, true
	}
	return p, probe
}

func (m *machine) succeed(t *rapid.T) {
	m.end(t)
	if closed := m.breaker.Succeeded(); closed != (m.trips > 0) {
		t.Fatalf("closed: %v after %d trips", closed, m.trips)
	}
	m.told = m.told || m.trips > 0
	m.failures, m.trips, m.err, m.probing = 0, 0, nil, false
}

func (m *machine) fail(t *rapid.T) {
	p, probe := m.end(t)
	atLeast := time.Duration(rapid.SampledFrom([]int{0, 0, 0, 20}).Draw(t, "at least")) * time.Second
	err := fmt.Errorf("failure %d", rapid.Int().Draw(t, "failure"))
	opened, s := m.breaker.Failed(p, err, atLeast)
	want := false
	if probe || m.trips == 0 {
		m.failures++
		want = probe || m.failures >= failures || atLeast > 0
	}
	if want {
		m.trips++
		m.failures, m.err, m.told = 0, err, true
		m.until = m.clock.Now().Add(max(pauses.Delay(m.trips), atLeast))
	}
	if opened != want || want && s.Pause != m.until.Sub(m.clock.Now()) {
		t.Fatalf("opened: %v for %v, want %v for %v", opened, s.Pause, want, m.until.Sub(m.clock.Now()))
	}
}

func (m *machine) abandon(t *rapid.T) {
	p, _ := m.end(t)
	m.breaker.Abandoned(p)
}

// check compares the status with the model, and expects that each change closed the channel.
func (m *machine) check(t *rapid.T) {
	s := m.breaker.Status()
	if s.Open != (m.trips > 0) || !errors.Is(s.Err, m.err) {
		t.Fatalf("open %v because of %v after %d trips, want %v", s.Open, s.Err, m.trips, m.err)
	}
	if m.changed != nil {
		select {
		case <-m.changed:
		default:
			if m.told {
				t.Fatal("a change was not told")
			}
		}
	}
	m.changed, m.told = s.Changed, false
}

// TestBreaker compares overlapping calls with the model.
func TestBreaker(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		clock := timer.NewFake(start)
		m := &machine{clock: clock, breaker: circuit.New(clock, failures, pauses)}
		t.Repeat(map[string]func(*rapid.T){
			"allow": func(t *rapid.T) {
				for range rapid.IntRange(1, 8).Draw(t, "calls") {
					m.allow(t)
				}
			},
			"succeed": m.succeed, "fail": m.fail, "fail again": m.fail, "fail as well": m.fail, "abandon": m.abandon, "": m.check,
			"wait": func(t *rapid.T) {
				clock.Advance(clock.Now().Add(time.Duration(rapid.IntRange(1, 12).Draw(t, "seconds")) * time.Second))
			},
		})
	})
}

// TestLimit shows that the shortest pauses of several users apply.
func TestLimit(t *testing.T) {
	clock := timer.NewFake(start)
	b := circuit.New(clock, 1, backoff.Policy{})
	b.Limit(backoff.Policy{Min: 2 * time.Second, Max: 3 * time.Second, Exact: true})
	b.Limit(backoff.Policy{Min: time.Second, Max: time.Minute, Exact: true})
	p := circuit.Granted
	for i, want := range []time.Duration{time.Second, 2 * time.Second, 3 * time.Second, 3 * time.Second} {
		if opened, s := b.Failed(p, errors.New("down"), 0); !opened || s.Pause != want || !s.Since.Equal(start) {
			t.Errorf("opening %d: %v for %v since %v, want %v", i, opened, s.Pause, s.Since, want)
		}
		clock.Advance(b.Status().Until)
		if p, _ = b.Allow(); p != circuit.Probe {
			t.Errorf("opening %d: no probe is permitted", i)
		}
	}
}
