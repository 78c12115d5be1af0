package pipeline

import (
	"context"
	"time"
)

// One of a route's workers at a time is its leader, and puts the next batch together. While there is nothing to take it waits for a
// change, which signal tells it, or for a time.

// plan is what the leader is to do.
type plan struct {
	take int // so many deltas at most, now; 0: nothing yet, but to look again

	due   time.Time       // then; zero: not before something changes
	want  int             // or when so many deltas are ready; 0: that is not what it waits for
	again <-chan struct{} // or when this is closed
	until time.Time       // the batch waits no longer then; zero: it is not incomplete
}

// signal wakes the leader. It is called under the lock.
func (r *route) signal() {
	r.want, r.parked = 0, false
	r.awaken()
}

func (r *route) awaken() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// next returns the next batch, in the space of batch; nothing when ctx is done.
func (r *route) next(ctx context.Context, batch []*entry) []*entry {
	select {
	case r.lead <- struct{}{}:
	case <-ctx.Done():
		return nil
	}
	defer func() { <-r.lead }()
	for r.settle(ctx) && ctx.Err() == nil {
		var again <-chan struct{}
		if batch, again = r.poll(batch); len(batch) > 0 {
			return batch
		}
		select {
		case <-r.wake:
		case <-again:
		case <-ctx.Done():
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unpark()
	return nil
}

// poll takes a batch if it is time to; else it sets the timer, and returns what to wait for beside wake; nil: nothing.
func (r *route) poll(batch []*entry) (_ []*entry, again <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now() // under the lock: what came before has come by then
	r.q.wake(now)
	r.q.pass()
	p := r.look(now)
	if p.take > 0 {
		r.unpark()
		r.until = time.Time{}
		if batch = r.q.take(p.take, batch, r.pass); r.limit != nil {
			r.changed()
		}
		if len(batch) > 0 {
			r.busy++
			return batch, nil
		}
		p = r.look(now) // what was ready has to wait for something
	}
	r.park(p)
	return batch, p.again
}

// look says what there is to do at this time, to which the queue was woken.
func (r *route) look(now time.Time) plan {
	if r.paused != "" || r.limitLess {
		return plan{}
	}
	if r.q.readyLen == 0 {
		return plan{want: 1, due: r.nextRetry(), again: r.q.gate()}
	}
	open, probe, reopened := r.gate(now)
	if probe.After(now) {
		return plan{due: probe, again: reopened}
	}
	limit := r.cfg.Batch.Size
	if open {
		limit = 1 // a probe
	}
	if r.q.readyLen >= limit || r.draining || r.cfg.Batch.Wait <= 0 || r.q.shape.grouped {
		return plan{take: limit}
	}
	p := plan{want: limit, until: r.until, due: r.nextRetry(), again: r.q.gate()}
	if p.until.IsZero() {
		p.until = now.Add(r.cfg.Batch.Wait)
	}
	if !p.until.After(now) {
		return plan{take: limit}
	}
	if p.due.IsZero() || p.until.Before(p.due) {
		p.due = p.until
	}
	return p
}

// park notes that the leader waits.
func (r *route) park(p plan) {
	r.want, r.parked = p.want, true
	if !p.until.IsZero() {
		r.until = p.until
	}
	if p.due.IsZero() {
		r.disarm()
	} else if !p.due.Equal(r.due) {
		r.due = p.due
		r.timer.Set(p.due)
	}
	if r.parent.awaited.Load() {
		r.parent.report()
	}
}

// unpark notes that it does not.
func (r *route) unpark() {
	r.want, r.parked = 0, false
	r.disarm()
}

func (r *route) disarm() {
	if !r.due.IsZero() {
		r.due = time.Time{}
		r.timer.Stop()
	}
}

// isIdle reports whether the route has nothing to do unless the clock moves, something comes, or it becomes ready. The leader may just
// have been woken for nothing; it finds nothing then.
func (r *route) isIdle() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	switch {
	case r.busy > 0:
		return false
	case r.paused != "":
		return true
	case r.catching && r.ready() && (r.cfg.When.CaughtUp == nil || isClosed(r.cfg.When.CaughtUp)):
		return false
	case !r.settled:
		return !r.ready()
	case !r.parked || !r.due.IsZero() && !r.due.After(now):
		return false
	case r.q.gated.head != nil && r.q.gated.head.lane.head.durable():
		return false
	}
	p := r.look(now)
	return p.take == 0 && (p.due.IsZero() || !r.due.IsZero() && !r.due.After(p.due)) // else a breaker has changed
}

// nextRetry returns when the next delayed lane is ready; zero: there is none.
func (r *route) nextRetry() (at time.Time) {
	if len(r.q.delayed) > 0 {
		at = r.q.delayed[0].at
	}
	return at
}

// gate looks at the breakers, and at the routes that are fed. While all sinks are known to be down, or full, nothing is taken, so that what waits can still be folded and does
// not fill the memory with events; when one may be probed, a single delta is. due is when; reopened is closed if that changes.
func (r *route) gate(now time.Time) (open bool, due time.Time, reopened <-chan struct{}) {
	for i, b := range r.sinks {
		o, at, c := r.heldBack[i].After(now), r.heldBack[i], (<-chan struct{})(nil)
		if b != nil {
			o, at, c = b.look(now)
		}
		if !o {
			return false, time.Time{}, nil
		}
		if !open || at.Before(due) {
			due, reopened = at, c
		}
		open = true
	}
	return open, due, reopened
}
