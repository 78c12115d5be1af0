package checkpoint_test

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/test/must"
)

func TestForget(t *testing.T) {
	// Guarantee: removed-route
	path := statePath(t)
	db := open(t, path)
	o := object(t, resource("", "pods"), "a", "u", "1", "")
	owed := []checkpoint.Pending{{ID: 1, Delta: &event.Delta{Op: event.Added, Source: "s", New: o}}}
	write(t, db, checkpoint.Cut{
		Watches: []checkpoint.WatchCut{{ID: "w1", Put: []*event.Object{o}}, {ID: "w2", Put: []*event.Object{o}}},
		Routes:  []checkpoint.RouteCut{{Name: "r1", Put: owed}, {Name: "r2", Put: owed}},
	})
	has := func(watches, routes string) {
		t.Helper()
		var w, r []string
		for _, id := range []string{"w1", "w2"} {
			if known, err := db.LoadWatch(id); err != nil {
				t.Fatal(err)
			} else if known != nil {
				w = append(w, id)
			}
		}
		for _, name := range []string{"r1", "r2"} {
			if known, err := db.LoadRoute(name, checkpoint.Part{}, func(string) *event.Resource { return nil }); err != nil {
				t.Fatal(err)
			} else if known != nil {
				r = append(r, name)
			}
		}
		if strings.Join(w, " ") != watches || strings.Join(r, " ") != routes {
			t.Errorf("there are %s and %s, want %s and %s", w, r, watches, routes)
		}
	}
	forget := func(after time.Duration, routes ...string) {
		t.Helper()
		must.Succeed(t, db.Forget(checkpoint.Configured{Watches: []string{"w1"}, Routes: routes}, seen.Add(after)))
		db = reopen(t, db, path)
	}
	forget(0, "r1")
	has("w1", "r1 r2")
	forget(23*time.Hour, "r1")
	has("w1", "r1 r2")
	forget(23*time.Hour, "r1", "r2") // it returned in time
	forget(30*time.Hour, "r1")
	has("w1", "r1 r2")
	forget(54*time.Hour, "r1")
	has("w1", "r1")
}

// TestForgetOnAFullDisk: state that could not be removed is still complete, and is removed later.
func TestForgetOnAFullDisk(t *testing.T) {
	path, full := statePath(t), true
	db, err := checkpoint.Open(checkpoint.Config{Path: path, Around: func(what string, do func() error) error {
		if full && what == checkpoint.TransactionForget {
			return fmt.Errorf("write: %w", syscall.ENOSPC)
		}
		return do()
	}})
	must.Succeed(t, err)
	t.Cleanup(func() { _ = db.Close() })
	o := object(t, resource("", "pods"), "a", "u", "1", "")
	write(t, db, checkpoint.Cut{
		Watches: []checkpoint.WatchCut{{ID: "w", Put: []*event.Object{o}}},
		Routes:  []checkpoint.RouteCut{{Name: "r", Put: []checkpoint.Pending{{ID: 1, Delta: &event.Delta{Op: event.Added, Source: "s", New: o}}}}},
	})
	var none checkpoint.Configured
	for day, step := range []struct {
		full        bool
		watch, owes bool
	}{{true, true, true}, {true, true, true}, {false, false, true}, {true, false, true}, {false, false, false}} {
		full = step.full
		if err := db.Forget(none, seen.Add(time.Duration(day)*24*time.Hour)); (err != nil) != full || full && !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("day %d: %v", day, err)
		}
		w, err := db.LoadWatch("w")
		must.Succeed(t, err)
		backlog, err := db.Backlog("r")
		if err != nil || (w != nil) != step.watch || (backlog.N > 0) != step.owes {
			t.Errorf("day %d: the watch is there: %v, the route owes %d, %v", day, w != nil, backlog.N, err)
		}
	}
}

// TestForgetMemory: the kv of a handler is kept for a day after the handler's removal.
func TestForgetMemory(t *testing.T) {
	// Guarantee: kv-kept
	db := open(t, statePath(t))
	defer db.Close()
	write(t, db, checkpoint.Cut{Memories: []checkpoint.MemoryCut{
		{Handler: "a", Put: []checkpoint.Value{{Key: "k", Value: []byte("1")}}},
		{Handler: "b", Put: []checkpoint.Value{{Key: "k", Value: []byte("2")}}},
	}})
	start := time.Unix(1e9, 0)
	there := func(handler string) bool {
		t.Helper()
		values, err := db.LoadMemory(handler)
		must.Succeed(t, err)
		return len(values) == 1
	}
	for _, step := range []struct {
		after    time.Duration
		handlers []string
		b        bool
	}{
		{0, []string{"a"}, true},
		{checkpoint.KeepBacklogs - 1, []string{"a"}, true},
		{checkpoint.KeepBacklogs - 1, []string{"a", "b"}, true}, // it returned
		{2 * checkpoint.KeepBacklogs, []string{"a"}, true},
		{3 * checkpoint.KeepBacklogs, []string{"a"}, false},
	} {
		must.Succeed(t, db.Forget(checkpoint.Configured{Handlers: step.handlers}, start.Add(step.after)))
		if !there("a") || there("b") != step.b {
			t.Errorf("after %v: a %v, b %v, want %v", step.after, there("a"), there("b"), step.b)
		}
	}
}

// TestKnowsRoute: a route is known from the first cut that names it, even without any change, until
// a day after its removal.
func TestKnowsRoute(t *testing.T) {
	path := statePath(t)
	db := open(t, path)
	pods := resource("", "pods")
	write(t, db, checkpoint.Cut{Routes: []checkpoint.RouteCut{
		{Name: "silent"},
		{Name: "owing", Put: []checkpoint.Pending{{ID: 1, Delta: &event.Delta{Source: "pods", Op: event.Added, New: object(t, pods, "a", "u", "1", "")}}}},
	}})
	db = reopen(t, db, path)
	check := func(when, name string, known, owes bool) {
		t.Helper()
		k, err := db.KnowsRoute(name)
		must.Succeed(t, err)
		d, err := db.Backlog(name)
		must.Succeed(t, err)
		if k != known || (d.N > 0) != owes {
			t.Errorf("%s: %s is known: %v, owes %d, want %v, %v", when, name, k, d.N, known, owes)
		}
	}
	gone := time.Now()
	check("at first", "silent", true, false)
	check("at first", "owing", true, true)
	check("at first", "other", false, false)
	must.Succeed(t, db.Forget(checkpoint.Configured{Routes: []string{"silent"}}, gone))
	for _, c := range []struct {
		when  string
		after time.Duration
		known bool
	}{{"just removed", 0, true}, {"soon", checkpoint.KeepBacklogs - 1, true}, {"a day later", checkpoint.KeepBacklogs, false}} {
		must.Succeed(t, db.ExpireBacklogs(gone.Add(c.after)))
		db = reopen(t, db, path) // which verifies it
		check(c.when, "silent", true, false)
		check(c.when, "owing", c.known, c.known)
	}
	write(t, db, checkpoint.Cut{Routes: []checkpoint.RouteCut{{Name: "owing"}}})
	check("returned", "owing", true, false)
}

// TestForgetKeepsPrefixes: the backlogs of routes whose names have a kept beginning stay.
func TestForgetKeepsPrefixes(t *testing.T) {
	// Guarantee: include-mistakes
	db := open(t, statePath(t))
	o := object(t, resource("", "pods"), "a", "u", "1", "")
	owed := []checkpoint.Pending{{ID: 1, Delta: &event.Delta{Op: event.Added, Source: "s", New: o}}}
	names := []string{"team/a", "team/b", "teams/a", "team"}
	var routes []checkpoint.RouteCut
	for _, name := range names {
		routes = append(routes, checkpoint.RouteCut{Name: name, Put: owed})
	}
	write(t, db, checkpoint.Cut{Routes: routes})
	for _, after := range []time.Duration{0, 2 * checkpoint.KeepBacklogs} {
		must.Succeed(t, db.Forget(checkpoint.Configured{Prefixes: []string{"team/"}}, seen.Add(after)))
	}
	for _, name := range names {
		backlog, err := db.Backlog(name)
		must.Succeed(t, err)
		if kept := strings.HasPrefix(name, "team/"); (backlog.N > 0) != kept {
			t.Errorf("route %s has %d pending deltas", name, backlog.N)
		}
	}
}
