package pipeline_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltarouter/deltarouter/pkg/checkpoint"
	"github.com/deltarouter/deltarouter/pkg/pipeline"
)

// owing makes a disk on which the route "old" owes versions 1 to 20, and "heir" 21 to 25.
func owing(t *testing.T) *flakyDisk {
	t.Helper()
	k := &flakyDisk{disk: disk{}}
	for name, versions := range map[string][2]int{"old": {1, 20}, "heir": {21, 25}} {
		b := openAs(t, pipeline.Config{Store: k}, routeOf(name, "1", &sink{}))
		b.admit(updates(t, versions[0], versions[1])...)
		k.cut(b)
	}
	return k
}

// TestInheritAtStart: what a route is to owe first cannot be put under its name when the router starts. It stands still until it can be,
// what comes meanwhile waits behind it, others go on, and it does not change meanwhile.
func TestInheritAtStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, s, other := owing(t), &sink{}, &sink{}
		heir := routeOf("heir", "1", s)
		heir.Was, heir.Capacity, heir.Disk = "old", 3, 1<<20
		second := routeOf("other", "1", other)
		second.Sinks[0].Name = "other"
		b := openAs(t, pipeline.Config{Store: k}, heir, second)
		k.before, k.full = func() { k.cut(b) }, true
		if err := b.Inherit("heir", "old", k.debt("old"), k.debt("heir")); err != nil {
			t.Fatal(err)
		}
		b.Start(t.Context())
		b.admit(updates(t, 26, 40)...)
		pass(time.Minute)
		if n := len(s.got()); n != 0 {
			t.Errorf("%d came before what is owed first was there", n)
		}
		perObject(t, other.got(), 26, 40)

		changed := heir
		changed.Version = "2"
		for _, routes := range [][]pipeline.Route{{changed}, nil} {
			change, err := b.Prepare(routes)
			if !errors.Is(err, pipeline.ErrWaiting) {
				t.Errorf("it may change: %v", err)
			}
			change.Abandon()
		}
		second.Version = "2"
		b.exchange(nil, heir, second)

		k.mu.Lock()
		k.full = false
		k.mu.Unlock()
		pass(time.Minute)
		perObject(t, s.got(), 1, 40)
		b.exchange(nil, changed)
		k.cut(b)
		if n := len(k.disk["heir"]) + len(k.disk["old"]); n != 0 {
			t.Errorf("%d on disk still", n)
		}
	})
}

// TestStopBeforeInheriting: a router that is stopped while a route waits stops at once, and all is owed still.
func TestStopBeforeInheriting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := owing(t)
		heir := routeOf("heir", "1", &sink{})
		heir.Was = "old"
		b := openAs(t, pipeline.Config{Store: k}, heir)
		k.before, k.full = func() { k.cut(b) }, true
		if err := b.Inherit("heir", "old", k.debt("old"), k.debt("heir")); err != nil {
			t.Fatal(err)
		}
		b.Start(t.Context())
		pass(time.Second)
		began := time.Now()
		_ = b.Drain(t.Context())
		if err := b.Close(t.Context()); err != nil || time.Since(began) > 0 {
			t.Errorf("it took %v to stop, %v", time.Since(began), err)
		}
		k.cut(b)
		if n := len(k.disk["heir"]) + len(k.disk["old"]); n != 25 {
			t.Errorf("%d are owed, want 25", n)
		}
	})
}

// TestInheritTooLate: what cannot be inherited is an error.
func TestInheritTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := startOn(t, pipeline.Config{}, routeOf("r", "1", &sink{}))
		for _, name := range []string{"r", "s"} {
			if err := b.Inherit(name, "old", checkpoint.Debt{}, checkpoint.Debt{}); err == nil {
				t.Errorf("%s inherits while it runs, or is not there", name)
			}
		}
	})
}
