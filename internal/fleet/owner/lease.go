package owner

import (
	"sync"
	"sync/atomic"
	"time"
)

// The parts of the TTL, in tenths, after a confirmed update was sent.
const (
	// validity: its sender is the owner, and begins calls.
	validity = 6
	// grace: the calls that it has begun may end. The rest is for those that do not obey at once,
	// and for clocks of different speeds.
	grace = 8
)

// Lease is the ownership of a partition in one epoch. It is safe for concurrent use.
type Lease struct {
	Partition Partition
	Epoch     uint64 // the revision of the taking
	// Trail has the notes of the owners before about messages that may end a worker.
	Trail Trail

	ttl   time.Duration
	begun time.Time
	until atomic.Int64  // after begun
	give  chan struct{} // closed when the partition should be handed over
	lost  chan struct{} // closed when the lease has ended
	write chan struct{} // asks for a write of the trail

	mu       sync.Mutex
	ended    bool
	revision uint64 // of the last confirmed update
	trail    Trail  // for the next update
	written  Trail
	changed  chan struct{} // closed with the next confirmed update or the end
}

func newLease(p Partition, trail Trail, ttl time.Duration, revision uint64, sent time.Time, give chan struct{}) *Lease {
	l := &Lease{
		Partition: p, Epoch: revision, Trail: trail, ttl: ttl, begun: sent, give: give, lost: make(chan struct{}), write: make(chan struct{}, 1),
		trail: trail, changed: make(chan struct{}),
	}
	l.confirmed(revision, trail, sent)
	return l
}

// Valid reports whether a call of a handler or a sink may begin now.
func (l *Lease) Valid() bool {
	until, now := time.Duration(l.until.Load()), time.Now()
	// the monotonic clock stands still while the machine is suspended, the other one does not
	return now.Sub(l.begun) < until && now.Round(0).Sub(l.begun.Round(0)) < until
}

// age returns the time since the last confirmed update was sent, by the faster clock, see Valid.
func (l *Lease) age() time.Duration {
	now := time.Now()
	since := max(now.Sub(l.begun), now.Round(0).Sub(l.begun.Round(0)))
	return since - time.Duration(l.until.Load()) + l.ttl*validity/10
}

// Released is closed when the partition should be handed over: the messages in hand are finished,
// and nothing else is begun.
func (l *Lease) Released() <-chan struct{} { return l.give }

// Lost is closed when the lease has ended.
func (l *Lease) Lost() <-chan struct{} { return l.lost }

// Revision returns the revision of the last confirmed update.
func (l *Lease) Revision() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.revision
}

// Leave sets the trail for the next owner. It is written with the next update.
func (l *Lease) Leave(t Trail) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.trail = t
}

// Written sets the trail for the next owner and waits until it is written. It returns false if the
// lease has ended, or if stop is closed before.
func (l *Lease) Written(t Trail, stop <-chan struct{}) bool {
	l.Leave(t)
	for {
		l.mu.Lock()
		done, ended, changed := l.written == t, l.ended, l.changed
		l.mu.Unlock()
		if done || ended {
			return done && !ended
		}
		select {
		case l.write <- struct{}{}:
		default:
		}
		select {
		case <-changed:
		case <-stop:
			return false
		}
	}
}

// next returns the trail for an update, and the revision before it.
func (l *Lease) next() (Trail, uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.trail, l.revision
}

// confirmed extends the lease after an update that was sent at a time.
func (l *Lease) confirmed(revision uint64, trail Trail, sent time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return
	}
	l.revision, l.written = revision, trail
	l.until.Store(int64(sent.Add(l.ttl * validity / 10).Sub(l.begun)))
	close(l.changed)
	l.changed = make(chan struct{})
}

// found records a revision of an update whose answer was lost. It does not extend the lease.
func (l *Lease) found(revision uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.revision = revision
}

// end ends the lease. It reports whether it had not ended before.
func (l *Lease) end() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return false
	}
	l.ended = true
	l.until.Store(0)
	close(l.changed)
	close(l.lost)
	return true
}
