package sim_test

import (
	"testing"
	"time"
)

// TestFullDiskIsNoCrashLoop: a router whose disk takes nothing starts all the same, also if a route was renamed that owes something, or was
// removed. The one waits, the others work, and all of it comes when there is room.
func TestFullDiskIsNoCrashLoop(t *testing.T) {
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
		w.want("s", "a")
		w.crash() // what is to be moved has not been
		w.begin()
		w.pass(5 * time.Second)
		w.disk.set(0, 0, false)
		w.pass(time.Minute)
		w.want("s", "a", "added a", "added b", "updated a")
		w.want("r", "a")
		w.want("gone", "a")
	}, renamed, other, removed)
}

// TestForgottenLater: what belongs to a route that was removed could not be forgotten, because the disk was full. It is 24 hours after it
// could be.
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
			w.begin() // now it is noted since when the route is gone
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
