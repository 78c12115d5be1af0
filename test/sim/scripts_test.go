package sim_test

import (
	"testing"
	"time"
)

// TestFullDiskIsNoCrashLoop shows that a router with a full disk starts, even after a route with a
// backlog was renamed or removed. The routes must work, the renamed one with its backlog.
func TestFullDiskIsNoCrashLoop(t *testing.T) {
	// Guarantee: full-disk-start
	renamed, other, removed := plain("r", "a"), plain("other", "b"), plain("gone", "a")
	script(t, func(w *world) {
		w.r.set("a", refusing)
		for _, name := range []string{"a", "b"} {
			w.c.happen(name, update, false)
		}
		w.pass(2500 * time.Millisecond)
		w.crash()
		w.r.healAll()
		renamed.names, removed.removed = append(renamed.names, "s"), true
		w.disk.set(0, 0, true)
		w.begin()
		w.pass(time.Second)
		w.c.happen("a", update, false)
		w.pass(10 * time.Second)
		w.want("other", "b", "added a", "added b", "updated a")
		w.want("s", "a", "added a", "added b", "updated a")
		w.disk.set(0, 0, false)
		w.pass(time.Minute)
		w.want("r", "a")
		w.want("gone", "a")
	}, renamed, other, removed)
}

// TestForgottenLater makes the disk full while the state of a removed route is due to be deleted.
// It must be deleted 24 hours after the disk has room again.
func TestForgottenLater(t *testing.T) {
	for _, day := range []bool{false, true} {
		r, removed := plain("r", "b"), plain("gone", "a")
		script(t, func(w *world) {
			w.r.set("a", refusing)
			w.c.happen("a", update, false)
			w.pass(2500 * time.Millisecond)
			w.stop()
			removed.removed = true
			w.disk.set(0, 0, true)
			w.begin()
			w.pass(time.Hour)
			w.stop()
			w.begin()
			w.pass(time.Second)
			w.disk.set(0, 0, false)
			w.stop()
			w.begin() // now the time of the removal is recorded
			w.pass(time.Second)
			w.stop()
			w.r.healAll()
			if w.pass(23 * time.Hour); day {
				w.pass(2 * time.Hour)
			}
			removed.removed = false
			w.begin()
			w.pass(5 * time.Second)
			if day {
				removed.since = w.c.now()
				w.want("gone", "a")
			} else {
				w.want("gone", "a", "added a")
			}
		}, r, removed)
	}
}

// TestInterruptedRelist interrupts a requested relist when a part of it is applied and saved. Only
// a list can find the differences, so the next life must list again.
func TestInterruptedRelist(t *testing.T) {
	// Guarantee: relist
	r := plain("r", "a")
	r.overflow, r.memory, r.batch = "block", 1, 1
	script(t, func(w *world) {
		for i := range names {
			w.c.happen(nameOf(i), update, false)
		}
		w.pass(time.Second)
		w.c.save()
		for i := range names {
			w.c.happen(nameOf(i), update, false)
		}
		w.pass(5 * time.Second)
		w.c.setDown(true)
		w.c.rewind()
		w.c.advance(1000)
		w.c.setDown(false)
		w.pass(5 * time.Second)
		if n := len(w.told("r", "a")); n != 2*names {
			w.fail("%d deliveries, want %d: that the backup was restored was noticed", n, 2*names)
		}
		w.r.set("a", blocked)
		if w.relist() {
			w.fail("it was not interrupted")
		}
		w.pass(5 * time.Second) // cuts
		w.crash()
		w.r.healAll()
		w.settle()
		if n := len(w.told("r", "a")); n != 3*names {
			w.fail("%d deliveries, want %d", n, 3*names)
		}
	}, r)
}
