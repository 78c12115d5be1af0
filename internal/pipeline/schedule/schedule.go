// Package schedule decides when a route takes the next batch, and how large it is at most.
//
// One worker of a route at a time is its leader: it asks [Leader.Plan], takes a batch of the queue,
// or waits for a change, of which [Leader.Signal] tells it, or for a time.
package schedule

import (
	"context"
	"time"

	"github.com/deltarouter/deltarouter/internal/timer"
)

// Leader is the turn of the workers of a route, and what the one that has it waits for. Acquire,
// Release and Wait may be called at any time; the lock of the route guards all else.
type Leader struct {
	turn  chan struct{} // holds a token while a worker is the leader
	wake  chan struct{} // something changed that the leader waits for, or it is time
	timer timer.Timer

	want   int       // the leader waits until so many deltas are ready; 0: for something else
	parked bool      // the leader waits, and nothing has changed since that it waits for
	due    time.Time // when it looks again, to which the timer is set; zero: when something changes
	// when the batch that is being put together waits no longer; zero: there is none
	until time.Time
}

// NewLeader returns the Leader of a route that goes by a clock.
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

// Release ends the turn of the leader.
func (l *Leader) Release() { <-l.turn }

// Wait waits until Signal is called, until it is time, until one of the channels is closed, or
// until ctx is done.
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

// Changed wakes the leader if it waits for no more deltas than are ready.
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

// View is a route at one time, to which its queue was woken.
type View struct {
	Now     time.Time
	Stopped bool      // nothing is taken until something changes
	Ready   int       // the deltas that can be taken
	NextDue time.Time // when the next lane can be taken by the time; zero: there is none
	// closed when a lane can be taken that waits for the disk; nil: there is none
	Gate  <-chan struct{}
	Sinks Sinks         // of no matter if nothing is ready
	Size  int           // of a batch, at most
	Wait  time.Duration // how long an incomplete batch waits for more
}

// Sinks are the sinks of a route. While all of them are known to be unavailable, or full, nothing
// is taken, so that pending deltas can still be coalesced and do not fill the memory with events;
// when one may be probed, a single delta is taken.
type Sinks struct {
	Down    bool            // none is known to be available
	Probe   time.Time       // when one of them may be probed
	Changed <-chan struct{} // closed when that changes
}

// Plan is what the leader is to do.
type Plan struct {
	Take int // so many deltas at most, now; 0: nothing yet, but to plan again

	Again <-chan struct{} // when this is closed
	due   time.Time       // or then; zero: not before something changes
	want  int             // or when so many deltas are ready; 0: that is not what it waits for
	until time.Time       // the batch waits no longer then; zero: it is not incomplete
}

// Plan returns what there is to do.
func (l *Leader) Plan(v *View) Plan {
	if v.Stopped {
		return Plan{}
	}
	if v.Ready == 0 {
		return Plan{want: 1, due: v.NextDue, Again: v.Gate}
	}
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
	p := Plan{want: size, until: l.until, due: v.NextDue, Again: v.Gate}
	if p.until.IsZero() {
		p.until = v.Now.Add(v.Wait)
	}
	if !p.until.After(v.Now) {
		return Plan{Take: size}
	}
	if p.due.IsZero() || p.until.Before(p.due) {
		p.due = p.until
	}
	return p
}

// Park notes that the leader waits by a plan.
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

// Unpark notes that the leader does not wait.
func (l *Leader) Unpark() {
	l.want, l.parked = 0, false
	l.disarm()
}

// Taken notes that the leader takes a batch.
func (l *Leader) Taken() {
	l.Unpark()
	l.until = time.Time{}
}

func (l *Leader) disarm() {
	if !l.due.IsZero() {
		l.due = time.Time{}
		l.timer.Stop()
	}
}

// Waits reports whether the leader waits, and its time has not come. It may just have been woken
// for nothing: then it waits too.
func (l *Leader) Waits(now time.Time) bool { return l.parked && (l.due.IsZero() || l.due.After(now)) }

// Idle reports whether the leader has nothing to do before the time that it waits for.
func (l *Leader) Idle(v *View) bool {
	p := l.Plan(v)
	// else a breaker has changed
	return p.Take == 0 && (p.due.IsZero() || !l.due.IsZero() && !l.due.After(p.due))
}
