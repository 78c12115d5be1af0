package queue

import (
	"context"
	"time"

	"github.com/deltarouter/deltarouter/internal/timer"
)

// Leader decides when a route takes the next batch, and its maximum size. One worker of a route at
// a time is the leader: it calls [Leader.Plan], and either takes a batch of the queue or waits for
// a change, signalled by [Leader.Signal], or for a time.
//
// Acquire, Release and Wait may be called at any time; the lock of the route guards all else.
type Leader struct {
	turn  chan struct{} // holds a token while a worker is the leader
	wake  chan struct{} // signalled when a change ends the wait, or the timer expires
	timer timer.Timer

	want   int       // the leader waits until so many deltas are ready; 0: not for a number
	parked bool      // the leader waits, and was not signalled since
	due    time.Time // the time to which the timer is set; zero: it is not set
	until  time.Time // the deadline of the incomplete batch, if it is View.Steady; zero: there is none

	taken [rareDeltas]time.Time // when the last deltas were taken, the latest first
	tried time.Time             // when a batch turned out to be empty; zero: it may have deltas now
}

// rareDeltas is the number of deltas within View.Wait that are taken at once: an incomplete batch
// waits until fewer than rareDeltas were taken within that time. So a delta does not wait while
// they are rare, and when they are frequent one batch is taken in each Wait.
const rareDeltas = 3

// NewLeader returns the Leader of a route.
func NewLeader(clock timer.Clock) *Leader {
	l := &Leader{turn: make(chan struct{}, 1), wake: make(chan struct{}, 1)}
	l.timer = clock.NewTimer(l.awaken)
	return l
}

// Acquire makes the caller the leader, until Release. It returns false when ctx is done.
func (l *Leader) Acquire(ctx context.Context) bool {
	select {
	case l.turn <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// Release gives the role up.
func (l *Leader) Release() { <-l.turn }

// Wait waits until Signal is called, the timer expires, one of the channels is closed, or ctx is
// done.
func (l *Leader) Wait(ctx context.Context, again, also <-chan struct{}) {
	select {
	case <-l.wake:
	case <-again:
	case <-also:
	case <-ctx.Done():
	}
}

// Signal wakes the leader.
func (l *Leader) Signal() {
	l.want, l.parked = 0, false
	l.awaken()
}

// Changed wakes the leader if enough deltas are ready.
func (l *Leader) Changed(ready int) {
	if l.want > 0 && ready >= l.want {
		l.Signal()
	}
}

func (l *Leader) awaken() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// View is the state of a route at a time at which its queue was woken.
type View struct {
	Now     time.Time
	Stopped bool      // no batch is taken until the route changes, or until Resume
	Resume  time.Time // zero: no time
	Ready   int       // the number of deltas that can be taken
	NextDue time.Time // when the next delayed lane can be taken; zero: there is none
	// closed when a gated lane can be taken; nil: there is none
	Gate  <-chan struct{}
	Sinks Sinks // not used if no delta is ready
	Size  int   // the maximum size of a batch
	// Wait is the time of the route within which rareDeltas deltas are taken in batches that are
	// not full.
	Wait time.Duration
	// Steady: such a batch waits for Wait instead, from its first delta on.
	Steady bool
}

// Sinks is the availability of the sinks of a route. While all of them are unavailable, or full, no
// batch is taken, so that pending deltas can still be coalesced and do not fill the memory with
// events. When one may be probed, a single delta is taken.
type Sinks struct {
	Down    bool            // all are unavailable
	Probe   time.Time       // when one of them may be probed
	Changed <-chan struct{} // closed when Down or Probe changes
}

// Plan is the next action of the leader.
type Plan struct {
	Take int // the maximum number of deltas to take now; 0: none, plan again later

	Again <-chan struct{} // plan again when this is closed
	due   time.Time       // or at this time; zero: no time
	want  int             // or when so many deltas are ready; 0: no number
	until time.Time       // the deadline of the incomplete batch; zero: there is none
}

// Plan returns the next action for a state of the route.
func (l *Leader) Plan(v *View) Plan {
	if v.Stopped {
		return Plan{due: v.Resume}
	}
	if v.Ready == 0 {
		return Plan{want: 1, due: v.NextDue, Again: v.Gate}
	}
	// While no sink takes anything, batches would only fill the memory with events.
	if v.Sinks.Probe.After(v.Now) {
		return Plan{due: v.Sinks.Probe, Again: v.Sinks.Changed}
	}
	size := v.Size
	if v.Sinks.Down {
		size = 1 // a probe
	}
	if v.Ready >= size || v.Wait <= 0 {
		return Plan{Take: size}
	}
	// The batch is not full, and the route wants to wait for more.
	until := l.deadline(v)
	if !until.After(v.Now) {
		return Plan{Take: size}
	}
	p := Plan{want: size, due: v.NextDue, Again: v.Gate}
	if v.Steady {
		p.until = until
	}
	if p.due.IsZero() || until.Before(p.due) {
		p.due = until
	}
	return p
}

// deadline returns the time until which the incomplete batch waits; if it is not after the present,
// the batch does not wait.
func (l *Leader) deadline(v *View) time.Time {
	switch {
	case v.Steady && !l.until.IsZero():
		return l.until
	case v.Steady:
		return v.Now.Add(v.Wait)
	case !l.tried.IsZero():
		return l.tried.Add(v.Wait)
	}
	return l.taken[rareDeltas-1].Add(v.Wait)
}

// Park records that the leader waits by a plan.
func (l *Leader) Park(p Plan) {
	l.want, l.parked = p.want, true
	if !p.until.IsZero() {
		l.until = p.until
	}
	if p.due.IsZero() {
		l.disarm()
	} else if !p.due.Equal(l.due) {
		l.due = p.due
		l.timer.Set(p.due)
	}
}

// Unpark records that the leader does not wait.
func (l *Leader) Unpark() {
	l.want, l.parked = 0, false
	l.disarm()
}

// Taken records that the leader has taken n deltas; 0: the ready ones turned out to be blocked.
func (l *Leader) Taken(now time.Time, n int) {
	l.Unpark()
	l.until, l.tried = time.Time{}, time.Time{}
	if n == 0 {
		l.tried = now
		return
	}
	n = min(n, rareDeltas)
	copy(l.taken[n:], l.taken[:])
	for i := range n {
		l.taken[i] = now
	}
}

// GateOpened records that deltas can be taken that could not be taken before.
func (l *Leader) GateOpened() { l.tried = time.Time{} }

func (l *Leader) disarm() {
	if !l.due.IsZero() {
		l.due = time.Time{}
		l.timer.Stop()
	}
}

// Waits reports whether the leader waits and its deadline has not come. A leader that was just
// woken without need counts as waiting.
func (l *Leader) Waits(now time.Time) bool { return l.parked && (l.due.IsZero() || l.due.After(now)) }

// Idle reports whether the leader has nothing to do before its deadline.
func (l *Leader) Idle(v *View) bool {
	p := l.Plan(v)
	// otherwise a breaker has changed
	return p.Take == 0 && (p.due.IsZero() || !l.due.IsZero() && !l.due.After(p.due))
}
