package history

import (
	"slices"
	"sync/atomic"
)

// followed is the number of decisions that wait for a follower.
const followed = 256

// Follower gets the decisions of a route as they are recorded. The log does not wait for it:
// beyond a bound it misses decisions.
type Follower struct {
	route     string
	decisions chan *Decision
	missed    atomic.Int64
}

// Decisions returns the channel of the decisions. They must not be changed.
func (f *Follower) Decisions() <-chan *Decision { return f.decisions }

// Missed returns the number of decisions that were missed since the last call.
func (f *Follower) Missed() int64 { return f.missed.Swap(0) }

// Follow begins to follow a route, until leave is called. A [Reader] that is made afterwards has
// all decisions that the follower does not get, and may have some that it gets.
func (l *Log) Follow(route string) (f *Follower, leave func()) {
	f = &Follower{route: route, decisions: make(chan *Decision, followed)}
	l.follow(func(all []*Follower) []*Follower { return append(all, f) })
	return f, func() {
		l.follow(func(all []*Follower) []*Follower {
			return slices.DeleteFunc(all, func(o *Follower) bool { return o == f })
		})
	}
}

// follow replaces the list of followers.
func (l *Log) follow(edit func([]*Follower) []*Follower) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []*Follower
	if now := l.followers.Load(); now != nil {
		all = slices.Clone(*now)
	}
	if all = edit(all); len(all) == 0 {
		l.followers.Store(nil)
		return
	}
	l.followers.Store(&all)
}

// tell gives a decision to the followers of its route.
func (l *Log) tell(d *Decision) {
	all := l.followers.Load()
	if all == nil {
		return
	}
	for _, f := range *all {
		if f.route != d.Route {
			continue
		}
		select {
		case f.decisions <- d:
		default:
			f.missed.Add(1)
		}
	}
}
