package persist

import (
	"testing"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// locked is a store that reports changes without the cut lock.
type locked struct {
	store

	t     *testing.T
	state *State
}

func (l *locked) check(step string) {
	l.t.Helper()
	if l.state.mu.TryLock() {
		l.state.mu.Unlock()
		l.t.Errorf("%s without the cut lock: a cut may have a part of the change", step)
	}
}

func (l *locked) Put(o *event.Object) {
	l.check("the store is changed")
	l.store.Put(o)
}

func (l *locked) Delete(key event.Key) {
	l.check("the store is changed")
	l.store.Delete(key)
}

// TestApplyInOneStep is about cuts during a change: the cut lock is held from the change of the
// store until the deltas are committed, and the next cut has all of it.
func TestApplyInOneStep(t *testing.T) {
	// Guarantee: kills-lose-nothing
	objects := &locked{store: store{}, t: t}
	objects.state = New(Config{Store: objects, Learn: func(*event.Object) {}, Unreadable: func(err error) { t.Error(err) }})
	o := pod(t, "a")
	for _, c := range []*Change{
		{Now: o, Added: true, Applied: "7"},
		{Before: o, Gone: o, Applied: "8"},
	} {
		committed := 0
		commit := event.CommitFunc(func() {
			objects.check("a delta is committed")
			committed++
		})
		c.Admissions = []event.Admission{commit, commit}
		objects.state.Apply(c)
		objects.state.Cut(func(applied string, _ bool) {
			if applied != c.Applied || committed != 2 {
				t.Errorf("after the change at %s a cut has version %q and %d of 2 deltas", c.Applied, applied, committed)
			}
		})
	}
}
