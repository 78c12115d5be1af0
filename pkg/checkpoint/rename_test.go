package checkpoint_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/deltarouter/deltarouter/pkg/checkpoint"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// TestRenameInterrupted: a debt that takes several transactions to move is interrupted after any of them. Whether it is completed by the
// same process, with what came meanwhile behind it, or after a restart: all of it is there once, in order, the renamed debt first.
func TestRenameInterrupted(t *testing.T) {
	const before, own = 2500, 1500
	entries := func(name string, from, n int) (owed []checkpoint.Owed) {
		for i := from; i < from+n; i++ {
			o := object(t, resource("", "pods"), fmt.Sprintf("%s-%d", name, i), "u", "1", "")
			owed = append(owed, checkpoint.Owed{ID: uint64(i), Delta: &event.Delta{Op: event.Added, Source: "s", New: o}})
		}
		return owed
	}
	for _, restart := range []bool{false, true} {
		for after := range 5 {
			t.Run(fmt.Sprint(restart, after), func(t *testing.T) {
				path, left := statePath(t), -1
				around := func(what string, do func() error) error {
					if what != checkpoint.TransactionRename || left < 0 {
						return do()
					}
					if left--; left < 0 {
						return errors.New("interrupted")
					}
					return do()
				}
				db, err := checkpoint.Open(checkpoint.Config{Path: path, Around: around})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = db.Close() })
				write(t, db, checkpoint.Cut{Routes: []checkpoint.RouteCut{
					{Name: "old", Put: entries("old", 1, before)}, {Name: "new", Put: entries("new", 1, own)},
				}})
				// What comes meanwhile has the ids that a route gives: behind both.
				write(t, db, checkpoint.Cut{Routes: []checkpoint.RouteCut{{Name: "new", Put: entries("late", own+before+1, 10)}}})
				left = after
				if err := db.Rename("old", "new", own); err == nil {
					t.Fatal("it was not interrupted")
				}
				upTo := uint64(own)
				if restart {
					db = reopen(t, db, path)
					debt, err := db.Debt("new")
					if err != nil {
						t.Fatal(err)
					}
					upTo = debt.Last
				}
				if err := db.Rename("old", "new", upTo); err != nil {
					t.Fatal(err)
				}
				db = reopen(t, db, path)
				all, err := db.LoadRoute("new", checkpoint.Part{}, func(string) *event.Resource { return nil })
				if err != nil || len(all) != before+own+10 {
					t.Fatalf("%d are owed, %v", len(all), err)
				}
				for i, o := range all {
					want := fmt.Sprintf("late-%d", i+1)
					if i < before {
						want = fmt.Sprintf("old-%d", i+1)
					} else if i < before+own {
						want = fmt.Sprintf("new-%d", i+1-before)
					}
					if got := o.Delta.Key().Name; got != want {
						t.Fatalf("at %d is %s, want %s", i, got, want)
					}
				}
				if debt, err := db.Debt("old"); err != nil || debt.N != 0 {
					t.Errorf("under the old name %+v are owed, %v", debt, err)
				}
			})
		}
	}
}

// TestRenameRules: what rules know moves along, also if nothing is owed and if it takes several transactions; what the rules of the new
// name know themselves stays.
func TestRenameRules(t *testing.T) {
	const n = 2500
	path := statePath(t)
	db := open(t, path)
	var old []checkpoint.RuleRecord
	for i := range n {
		old = append(old, checkpoint.RuleRecord{Kind: 'l', Key: fmt.Appendf(nil, "k%d", i), Value: []byte("old")})
	}
	write(t, db, checkpoint.Cut{Routes: []checkpoint.RouteCut{
		{Name: "old", Rules: old},
		{Name: "new", Rules: []checkpoint.RuleRecord{{Kind: 'l', Key: []byte("k7"), Value: []byte("new")}, {Kind: 'x', Key: []byte("k7"), Value: []byte{}}}},
	}})
	if err := db.Rename("old", "new", 0); err != nil {
		t.Fatal(err)
	}
	db = reopen(t, db, path)
	if left, err := db.LoadRules("old"); err != nil || len(left) > 0 {
		t.Errorf("under the old name %d records are left, %v", len(left), err)
	}
	all, err := db.LoadRules("new")
	if err != nil || len(all) != n+1 {
		t.Fatalf("there are %d records, %v", len(all), err)
	}
	for _, r := range all {
		want := "old"
		if string(r.Key) == "k7" {
			want = "new"
		}
		if r.Kind == 'l' && string(r.Value) != want {
			t.Errorf("%s is %q, want %q", r.Key, r.Value, want)
		}
	}
}
