package election

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/deltarouter/deltarouter/internal/timer"
)

// Leadership is a term of this member as the leader. It renews the Lease until Release or Abandon.
type Leadership struct {
	e    *Elector
	base time.Time    // of until
	till atomic.Int64 // the deadline, in nanoseconds after base

	mu    sync.Mutex
	over  bool // it has ended, and is not extended any more
	lost  chan struct{}
	asked chan struct{}
	to    string // see Asked

	alarm timer.Timer // at the deadline
	wake  chan struct{}
	next  timer.Timer // of the next renewal
	stop  context.CancelFunc
	done  chan struct{} // closed when no renewal is sent any more
}

// begin begins a term with a request that was sent at a time.
func (e *Elector) begin(ctx context.Context, sent time.Time) *Leadership {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	l := &Leadership{
		e: e, base: sent, lost: make(chan struct{}), asked: make(chan struct{}), stop: stop,
		done: make(chan struct{}), wake: make(chan struct{}, 1),
	}
	l.till.Store(int64(e.cfg.renewDeadline()))
	l.alarm = e.cfg.Clock.NewTimer(l.expire)
	l.next = e.cfg.Clock.NewTimer(func() {
		select {
		case l.wake <- struct{}{}:
		default:
		}
	})
	l.alarm.Set(l.Deadline())
	go func() {
		defer close(l.done)
		l.run(ctx, sent)
	}()
	return l
}

// Deadline returns the time, by the monotonic clock, until which this member is certainly the only
// leader: two thirds of the duration after the last confirmed renewal was sent.
func (l *Leadership) Deadline() time.Time { return l.base.Add(time.Duration(l.till.Load())) }

// Permit reports whether this member leads now. It reads the clock, so that it is right even if the
// process stood still and no timer has run since. Once false, it stays false.
func (l *Leadership) Permit() bool {
	return int64(l.e.cfg.Clock.Now().Sub(l.base)) < l.till.Load()
}

// Lost is closed when the term has ended without Release: by the deadline, because another member
// has the Lease, or by Abandon.
func (l *Leadership) Lost() <-chan struct{} { return l.lost }

// Asked is closed when another member asks for the leadership, see [Elector.RequestHandover].
func (l *Leadership) Asked() <-chan struct{} { return l.asked }

// AskedBy returns the member that asked for the leadership; empty: none.
func (l *Leadership) AskedBy() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.to
}

// expire ends the term if it has not been extended.
func (l *Leadership) expire() {
	if l.Permit() {
		return
	}
	err := l.e.Err()
	if err == nil {
		err = errors.New("a request was not answered yet")
	}
	if l.lose() {
		l.e.cfg.Log.Warn("the Lease was lost: it was not renewed in time", "within", l.e.cfg.renewDeadline(), "err", err)
	}
}

// lose ends the term at once. It reports whether it had not ended before.
func (l *Leadership) lose() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return false
	}
	l.over = true
	l.till.Store(0)
	close(l.lost)
	return true
}

// run renews the Lease until ctx is done, or until the term has ended.
func (l *Leadership) run(ctx context.Context, sent time.Time) {
	at := sent.Add(l.e.cfg.retryPeriod())
	for {
		l.next.Set(at)
		select {
		case <-l.wake:
		case <-l.lost:
			return
		case <-ctx.Done():
			return
		}
		sent = l.e.cfg.Clock.Now()
		err := l.renew(ctx, sent)
		if errors.Is(err, errConflict) { // an annotation was set, or a renewal without an answer was stored
			sent = l.e.cfg.Clock.Now()
			err = l.renewAnew(ctx, sent)
		}
		if ctx.Err() != nil {
			return
		}
		if l.e.report(err); err != nil { // a connection that leads nowhere is not used again
			l.e.cfg.Client.CloseIdleConnections()
		}
		at = sent.Add(l.e.cfg.retryPeriod())
	}
}

// renew sends one renewal.
func (l *Leadership) renew(ctx context.Context, sent time.Time) error {
	l.e.mu.Lock()
	now := l.e.seen
	l.e.mu.Unlock()
	next, err := l.e.patch(ctx, now.version, l.e.taken(&now, sent))
	if err != nil {
		return err
	}
	l.e.observe(next, nil)
	l.extend(sent)
	l.ask(next.handoverTo)
	return nil
}

// renewAnew reads the Lease, and renews it if this member still has it.
func (l *Leadership) renewAnew(ctx context.Context, sent time.Time) error {
	now, err := l.e.read(ctx)
	if err != nil && !errors.Is(err, errNotFound) {
		return err
	}
	l.e.observe(now, err)
	if err != nil || now.holder != l.e.cfg.Holder {
		l.e.cfg.Log.Warn("another member has the Lease, or it was deleted", "holder", now.holder)
		l.lose()
		return nil
	}
	return l.renew(ctx, sent)
}

// extend moves the deadline, unless the term has ended meanwhile.
func (l *Leadership) extend(sent time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over || !l.Permit() {
		return
	}
	l.till.Store(int64(sent.Add(l.e.cfg.renewDeadline()).Sub(l.base)))
	l.alarm.Set(l.Deadline())
}

// ask records a request for the leadership.
func (l *Leadership) ask(to string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.to == "" && to != "" && to != l.e.cfg.Holder {
		l.to = to
		close(l.asked)
	}
}

// Abandon ends the term at once and leaves the Lease to expire.
func (l *Leadership) Abandon() {
	l.end()
	l.lose()
}

// end ends the renewals.
func (l *Leadership) end() {
	l.stop()
	<-l.done
	l.alarm.Stop()
	l.next.Stop()
}

// Release ends the term and frees the Lease, so that another member takes it at once. If prefer is
// not empty, this member takes it before all others. It does nothing if the term has ended.
func (l *Leadership) Release(ctx context.Context, prefer string) error {
	l.end()
	held := l.Permit()
	l.lose()
	if !held {
		return nil
	}
	for range 2 {
		now, err := l.e.read(ctx)
		if err != nil {
			return err
		}
		if l.e.observe(now, nil); now.holder != l.e.cfg.Holder {
			return nil
		}
		next, err := l.e.patch(ctx, now.version, freed(l.e.cfg.Clock.Now(), prefer))
		if !errors.Is(err, errConflict) {
			l.e.observe(next, err)
			return err
		}
	}
	return errConflict
}
