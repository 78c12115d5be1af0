package checkpoint_test

import (
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/pkg/checkpoint"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// TestKnowsRoute: a route is known from the first cut that names it, also one that says no more than that, until a day after it was
// removed.
func TestKnowsRoute(t *testing.T) {
	path := statePath(t)
	db := open(t, path)
	pods := resource("", "pods")
	write(t, db, checkpoint.Cut{Routes: []checkpoint.RouteCut{
		{Name: "silent"},
		{Name: "owing", Put: []checkpoint.Owed{{ID: 1, Delta: &event.Delta{Source: "pods", Op: event.Added, New: object(t, pods, "a", "u", "1", "")}}}},
	}})
	db = reopen(t, db, path)
	check := func(when, name string, known, owes bool) {
		t.Helper()
		k, err := db.KnowsRoute(name)
		if err != nil {
			t.Fatal(err)
		}
		o, err := db.Owes(name)
		if err != nil {
			t.Fatal(err)
		}
		if k != known || o != owes {
			t.Errorf("%s: %s is known: %v, owes: %v, want %v, %v", when, name, k, o, known, owes)
		}
	}
	gone := time.Now()
	check("at first", "silent", true, false)
	check("at first", "owing", true, true)
	check("at first", "other", false, false)
	if err := db.Forget(checkpoint.Configured{Routes: []string{"silent"}}, gone); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		when  string
		after time.Duration
		known bool
	}{{"just removed", 0, true}, {"soon", checkpoint.KeepDebts - 1, true}, {"a day later", checkpoint.KeepDebts, false}} {
		if err := db.ExpireDebts(gone.Add(c.after)); err != nil {
			t.Fatal(err)
		}
		db = reopen(t, db, path) // which verifies it
		check(c.when, "silent", true, false)
		check(c.when, "owing", c.known, c.known)
	}
	write(t, db, checkpoint.Cut{Routes: []checkpoint.RouteCut{{Name: "owing"}}})
	check("returned", "owing", true, false)
}
