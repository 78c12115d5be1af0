package checkpoint_test

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/pkg/checkpoint"
	"github.com/deltarouter/deltarouter/pkg/event"
)

func TestForget(t *testing.T) {
	path := statePath(t)
	db := open(t, path)
	o := object(t, resource("", "pods"), "a", "u", "1", "")
	owed := []checkpoint.Owed{{ID: 1, Delta: &event.Delta{Op: event.Added, Source: "s", New: o}}}
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
		if err := db.Forget(checkpoint.Configured{Watches: []string{"w1"}, Routes: routes}, seen.Add(after)); err != nil {
			t.Fatal(err)
		}
		db = reopen(t, db, path)
	}
	forget(0, "r1")
	has("w1", "r1 r2")
	forget(23*time.Hour, "r1")
	has("w1", "r1 r2")
	forget(23*time.Hour, "r1", "r2") // it is back in time
	forget(30*time.Hour, "r1")
	has("w1", "r1 r2")
	forget(54*time.Hour, "r1")
	has("w1", "r1")
}

// TestForgetOnAFullDisk: what could not be forgotten is there still, whole, and is forgotten later.
func TestForgetOnAFullDisk(t *testing.T) {
	path, full := statePath(t), true
	db, err := checkpoint.Open(checkpoint.Config{Path: path, Around: func(what string, do func() error) error {
		if full && what == checkpoint.TransactionForget {
			return fmt.Errorf("write: %w", syscall.ENOSPC)
		}
		return do()
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	o := object(t, resource("", "pods"), "a", "u", "1", "")
	write(t, db, checkpoint.Cut{
		Watches: []checkpoint.WatchCut{{ID: "w", Put: []*event.Object{o}}},
		Routes:  []checkpoint.RouteCut{{Name: "r", Put: []checkpoint.Owed{{ID: 1, Delta: &event.Delta{Op: event.Added, Source: "s", New: o}}}}},
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
		if err != nil {
			t.Fatal(err)
		}
		owes, err := db.Owes("r")
		if err != nil || (w != nil) != step.watch || owes != step.owes {
			t.Errorf("day %d: the watch is there: %v, the route owes: %v, %v", day, w != nil, owes, err)
		}
	}
}
