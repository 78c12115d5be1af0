package election

import (
	"errors"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/test/must"
)

// TestFail: a member that could not lead takes the Lease again after a delay that grows up to a
// minute, although it has no state, as long as no other member has led. It logs a reason once, and
// then from time to time.
func TestFail(t *testing.T) {
	// Guarantee: fleet-able-to-lead
	s := &store{}
	e, clock := s.elector(t, "one", here)
	var log strings.Builder
	e.cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
	e.cfg.Ready = func(quiet time.Duration) bool { return quiet >= 2*time.Minute }
	try := func(e *Elector, want bool) *Leadership {
		t.Helper()
		sent, held, err := e.try(t.Context())
		if held != want || err != nil {
			t.Fatalf("held %v, %v", held, err)
		}
		if !held {
			return nil
		}
		return e.begin(t.Context(), sent)
	}
	old, now := errors.New("the servers are too old"), here
	for n, longest := range []time.Duration{3, 6, 12, 24, 48, 60, 60, 60} {
		longest *= time.Second
		must.Succeed(t, try(e, true).Release(t.Context(), ""))
		e.Fail(old)
		if err := e.Failure(); !errors.Is(err, old) {
			t.Errorf("the reason is %v", err)
		}
		clock.Advance(now.Add(longest/2 - 1))
		try(e, false)
		now = now.Add(longest)
		clock.Advance(now)
		if said := strings.Count(log.String(), "could not lead"); said != 1 {
			t.Errorf("the reason was logged %d times after %d attempts", said, n+1)
		}
	}

	try(e, true).Abandon()
	e.Fail(errors.New("another reason"))
	e.Fail(errors.New("another reason"))
	clock.Advance(now.Add(remindAfter))
	e.Fail(errors.New("another reason"))
	if said := strings.Count(log.String(), "another reason"); said != 2 {
		t.Errorf("the other reason was logged %d times", said)
	}

	// another member leads: the state is with it
	now = now.Add(remindAfter)
	two, others := s.elector(t, "two", there)
	try(two, false)
	others.Advance(there.Add(15 * time.Second))
	must.Succeed(t, try(two, true).Release(t.Context(), ""))
	now = now.Add(maxDelay)
	clock.Advance(now)
	try(e, false)
	if err := e.Failure(); err != nil {
		t.Errorf("it could not lead since another one has led: %v", err)
	}
	clock.Advance(now.Add(2 * time.Minute))
	try(e, true).Abandon()
	e.Succeed()
	if err := e.Failure(); err != nil {
		t.Errorf("it leads, and says %v", err)
	}
}

// TestFailuresTakeTurns: a member that fails each time leaves the Lease to one that can lead, also
// if that one has no state yet and waits until the Lease is quiet. Without another one it goes on.
// There are never two leaders.
func TestFailuresTakeTurns(t *testing.T) {
	// Guarantee: fleet-able-to-lead, fleet-one-leader
	for name, c := range map[string]struct {
		quiet  time.Duration // that the other member waits for
		alone  bool
		within int // seconds
	}{
		"with the state":    {0, false, 3},
		"without the state": {Patience, false, 900},
		"alone":             {0, true, 1200},
	} {
		t.Run(name, func(t *testing.T) {
			s := &store{}
			one, clock := s.elector(t, "one", here)
			two, others := s.elector(t, "two", there)
			two.cfg.Ready = func(quiet time.Duration) bool { return quiet >= c.quiet && quiet < math.MaxInt64 }
			tried := 0 // the second of the last attempt of one
			for second := 1; second <= c.within; second++ {
				clock.Advance(here.Add(time.Duration(second) * time.Second))
				others.Advance(there.Add(time.Duration(second) * time.Second))
				if l := takes(t, one); l != nil {
					must.Succeed(t, l.Release(t.Context(), ""))
					one.Fail(errors.New("it cannot lead"))
					tried = second
				}
				if c.alone {
					if time.Duration(second-tried)*time.Second > turn {
						t.Fatalf("no attempt since second %d", tried)
					}
					continue
				}
				if l := takes(t, two); l != nil {
					one.failed.until = time.Time{}
					if takes(t, one) != nil && l.Permit() {
						t.Error("both lead")
					}
					return
				}
			}
			if !c.alone {
				t.Errorf("the other member does not lead after %d s", c.within)
			}
		})
	}
}

// takes makes one attempt. The result is nil if the member did not take the Lease.
func takes(t *testing.T, e *Elector) *Leadership {
	t.Helper()
	sent, held, err := e.try(t.Context())
	must.Succeed(t, err)
	if !held {
		return nil
	}
	l := e.begin(t.Context(), sent)
	t.Cleanup(l.Abandon)
	return l
}
