package route

import "testing"

// TestAccount: the routes of an owner share its bytes, a removed route returns its own, and other
// owners, and routes without one, have theirs.
func TestAccount(t *testing.T) {
	s := &shares{Memory: 100, Disk: 50}
	a, b := account{limits: s}, account{limits: s}
	other, own := account{limits: s}, account{limits: s}
	a.move(s.of("team/a"))
	b.move(s.of("team/b"))
	other.move(s.of("other/a"))
	own.move(s.of("own"))
	check := func(when string, wantA, wantB int64) {
		t.Helper()
		if gotA, gotB := a.within(80), b.within(80); gotA != wantA || gotB != wantB {
			t.Errorf("%s: %d and %d bytes, want %d and %d", when, gotA, gotB, wantA, wantB)
		}
		if other.within(80) != 80 || own.within(200) != 200 {
			t.Errorf("%s: others have %d and %d bytes", when, other.within(80), own.within(200))
		}
	}
	check("empty", 80, 80)
	a.count(60)
	check("one", 80, 40)
	b.count(90) // its last delta was large
	check("both", 10, 40)
	a.count(0)
	check("emptied", 10, 80)
	b.count(120)
	check("exceeded", 1, 80)
	b.move(nil)
	b.count(70)
	if a.within(80) != 80 || s.of("team/b").memory.Load() != 0 {
		t.Error("a removed route has kept its bytes")
	}
	a.saved(50)
	own.saved(50)
	if a.excess() != 0 || other.excess() != -50 || own.excess() > -1<<40 {
		t.Errorf("%d, %d and %d bytes too many on disk", a.excess(), other.excess(), own.excess())
	}
}
