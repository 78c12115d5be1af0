package election

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/test/must"
)

// store is an API server with one Lease, which answers as a test wants.
type store struct {
	mu      sync.Mutex
	object  map[string]any
	version int
	before  func(r *http.Request) bool // false: the answer is 500
	after   func(r *http.Request) bool // false: it is stored, but the answer is 500
}

// merge applies a merge patch (RFC 7396).
func merge(into, patch map[string]any) {
	for key, value := range patch {
		inner, ok := value.(map[string]any)
		switch {
		case value == nil:
			delete(into, key)
		case ok:
			if into[key] == nil {
				into[key] = map[string]any{}
			}
			merge(into[key].(map[string]any), inner)
		default:
			into[key] = value
		}
	}
}

// ServeHTTP implements http.Handler.
func (s *store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	text, _ := io.ReadAll(r.Body) // an empty text fails the test
	if s.before != nil && !s.before(r) {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var body map[string]any
	_ = json.Unmarshal(text, &body) // a GET has none
	metadata, _ := body["metadata"].(map[string]any)
	switch {
	case r.Method == http.MethodPost && s.object != nil, r.Method == http.MethodPatch && metadata["resourceVersion"] != fmt.Sprint(s.version):
		w.WriteHeader(http.StatusConflict)
		return
	case r.Method != http.MethodPost && s.object == nil:
		w.WriteHeader(http.StatusNotFound)
		return
	case r.Method == http.MethodPost:
		s.object = map[string]any{}
	}
	if r.Method != http.MethodGet {
		merge(s.object, maps.Clone(body))
		s.version++
		s.object["metadata"].(map[string]any)["resourceVersion"] = fmt.Sprint(s.version)
	}
	if s.after != nil && !s.after(r) {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	_ = json.NewEncoder(w).Encode(s.object)
}

// elector returns a member of a store with a clock of its own.
func (s *store) elector(t *testing.T, holder string, now time.Time) (*Elector, *timer.Fake) {
	t.Helper()
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	clock := timer.NewFake(now)
	return New(Config{
		URL: server.URL, Client: server.Client(), Name: "lease", Namespace: "default", Holder: holder, Duration: 15 * time.Second,
		Clock: clock, Log: slog.New(slog.DiscardHandler),
	}), clock
}

// settle waits until a condition holds.
func settle(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(time.Minute); !holds(); {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("still not: " + what)
		}
	}
}

// The clocks of the two members differ by years: only intervals matter.
var here, there = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2031, 1, 1, 0, 0, 0, 0, time.UTC)

// TestDeadline: the leadership ends exactly two thirds of the duration after the last confirmed
// renewal was sent, whatever the API server does in the meantime, and it stays ended.
func TestDeadline(t *testing.T) {
	// Guarantee: fleet-one-leader
	for name, answer := range map[string]func(s *store, hang chan struct{}){
		"errors":         func(s *store, _ chan struct{}) { s.before = func(*http.Request) bool { return false } },
		"silence":        func(s *store, hang chan struct{}) { s.before = func(*http.Request) bool { <-hang; return true } },
		"answers missed": func(s *store, _ chan struct{}) { s.after = func(*http.Request) bool { return false } },
	} {
		t.Run(name, func(t *testing.T) {
			s, hang := &store{}, make(chan struct{})
			e, clock := s.elector(t, "one", here)
			l := acquire(t, e)
			renewed := func(n int) { // the n-th renewal, after 2 s each
				at := here.Add(time.Duration(n) * 2 * time.Second)
				settle(t, "the timer is set", func() bool { next, _ := clock.Next(); return next.Equal(at) })
				clock.Advance(at)
				settle(t, "renewed", func() bool { return l.Deadline().Equal(at.Add(10 * time.Second)) })
			}
			renewed(1)
			renewed(2)
			settle(t, "the timer is set", func() bool { next, _ := clock.Next(); return next.Equal(here.Add(6 * time.Second)) })
			answer(s, hang)
			clock.Advance(here.Add(14*time.Second - 1))
			if !l.Permit() {
				t.Error("the leadership ended too early")
			}
			clock.Advance(here.Add(14 * time.Second))
			select {
			case <-l.Lost():
			default:
				t.Error("it is not lost at the deadline")
			}
			close(hang)
			l.end()
			clock.Advance(here) // a step back
			if l.extend(clock.Now()); l.Permit() {
				t.Error("a late answer extends a leadership that has ended")
			}
		})
	}
}

// TestExpiry: a member takes the Lease when it saw no change of it for its duration, which is
// longer than the leader counts itself the leader.
func TestExpiry(t *testing.T) {
	// Guarantee: fleet-one-leader
	s := &store{}
	one, _ := s.elector(t, "one", here)
	two, clock := s.elector(t, "two", there)
	l := acquire(t, one)
	got := make(chan *Leadership, 1)
	go func() {
		next, err := two.Acquire(t.Context())
		must.Report(t, err)
		got <- next
	}()
	// It sees the Lease, then a renewal at the third look, 3 s later.
	looks := 0
	for {
		var second *Leadership
		settle(t, "it waits or leads", func() bool {
			select {
			case second = <-got:
				return true
			default:
				_, waits := clock.Next()
				return waits
			}
		})
		if second != nil {
			if at, want := clock.Now().Sub(there), 3*time.Second+15*time.Second; at != want {
				t.Errorf("it leads after %s, want %s", at, want)
			}
			second.Abandon()
			break
		}
		switch looks++; looks {
		case 3:
			must.Succeed(t, l.renew(t.Context(), here))
		case 100:
			t.Fatal("it does not take the Lease")
		}
		next, _ := clock.Next()
		clock.Advance(next)
	}
	l.Abandon()
}

// TestNotReady: a member that is not able to lead leaves the Lease to others, and learns for how
// long it did not change.
func TestNotReady(t *testing.T) {
	// Guarantee: fleet-able-to-lead
	s := &store{}
	one, clock := s.elector(t, "one", here)
	var quiet []time.Duration
	ready := false
	one.cfg.Ready = func(q time.Duration) bool { quiet = append(quiet, q); return ready }
	try := func(want bool) {
		t.Helper()
		if _, held, err := one.try(t.Context()); held != want || err != nil {
			t.Errorf("held %v, %v", held, err)
		}
	}
	try(false) // there is no Lease
	other, _ := s.elector(t, "two", here)
	acquire(t, other).Abandon()
	try(false) // it is held, so it is not asked
	clock.Advance(here.Add(15 * time.Second))
	try(false)
	clock.Advance(here.Add(time.Minute))
	try(false)
	ready = true
	try(true)
	if want := []time.Duration{math.MaxInt64, 15 * time.Second, time.Minute, time.Minute}; !slices.Equal(quiet, want) {
		t.Errorf("the Lease is quiet for %v, want %v", quiet, want)
	}
}
