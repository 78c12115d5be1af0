package owner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/deltarouter/deltarouter/internal/complaints"
	"github.com/deltarouter/deltarouter/internal/printable"
)

// Hold handles a partition while a lease is held. It returns when it has nothing in hand any more
// after [Lease.Released] was closed, or when ctx is done, which happens soon after the lease is
// lost. If it returns true, the worker takes the partition again, with another epoch; otherwise the
// partition is free for the next owner.
type Hold func(ctx context.Context, l *Lease) (again bool)

// keeper takes one partition, and holds it until it is told to give it.
type keeper struct {
	store     Store
	partition Partition
	worker    string // the process
	ttl       time.Duration
	route     string // the id of the route, which people know
	log       *slog.Logger
	hold      Hold

	complaints *complaints.Log

	// first: the worker is the one that should own the partition. Otherwise it stands in for that
	// one, and takes the partition only from an owner that is gone.
	first    atomic.Bool
	give     chan struct{} // closed when the worker should not own the partition
	given    bool          // it is closed; used by the Owner only
	obsolete atomic.Bool   // the partition has no messages any more: its key is removed
	ended    chan struct{} // closed when run returned
	holding  atomic.Pointer[Lease]
}

// run takes and holds the partition until give is closed. If ctx ends, the lease is not freed.
func (k *keeper) run(ctx context.Context) {
	defer close(k.ended)
	defer k.tidy(ctx)
	for pause := time.Duration(0); ; pause = k.ttl / 10 {
		v, revision, ok := k.wait(ctx, pause)
		if !ok {
			return
		}
		l := k.take(ctx, v, revision)
		for l != nil {
			k.holding.Store(l)
			again := k.own(ctx, l)
			k.holding.Store(nil)
			if again && ctx.Err() == nil {
				k.pause(ctx, k.ttl/50)
				l = k.retake(ctx, l)
				continue
			}
			l = nil
		}
	}
}

// wait waits, after a pause, until the partition may be taken. It returns false if it should not
// be.
func (k *keeper) wait(ctx context.Context, pause time.Duration) (v value, revision uint64, ok bool) {
	var since time.Time // the revision was seen first
	for k.pause(ctx, pause) {
		first := k.first.Load()
		if pause = k.ttl / 10; !first {
			pause = k.ttl / 4
		}
		now, at, err := k.look(ctx)
		if err != nil {
			k.log.Debug("partition cannot be read", slog.String("partition", k.partition.String()), slog.Any("err", err))
			continue
		}
		if at != revision || since.IsZero() {
			v, revision, since = now, at, time.Now()
		}
		still := time.Since(since) > k.ttl
		if still || v.Worker == k.worker || first && v.free() {
			return v, revision, true
		}
	}
	return v, 0, false
}

// pause waits. It returns false if the partition should not be taken.
func (k *keeper) pause(ctx context.Context, d time.Duration) bool {
	if d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-ctx.Done():
		case <-k.give:
		case <-t.C:
		}
	}
	select {
	case <-ctx.Done():
		return false
	case <-k.give:
		return false
	default:
		return true
	}
}

// look reads the key of the partition.
func (k *keeper) look(ctx context.Context) (v value, revision uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, k.ttl/2)
	defer cancel()
	data, revision, err := k.store.Get(ctx, k.partition.String())
	if err == nil {
		v, err = decode(data)
	}
	return v, revision, err
}

// take writes the key after a revision. It returns nil if that failed: the caller looks again.
func (k *keeper) take(ctx context.Context, before value, revision uint64) *Lease {
	trail := before.after(k.worker)
	v := value{Worker: k.worker, Trail: trail}
	ctx, cancel := context.WithTimeout(ctx, k.ttl/2)
	defer cancel()
	sent := time.Now()
	epoch, err := k.store.Put(ctx, k.partition.String(), v.encode(), revision)
	if err != nil {
		if !errors.Is(err, ErrChanged) {
			k.log.Debug("partition cannot be taken", slog.String("partition", k.partition.String()), slog.Any("err", err))
		}
		return nil
	}
	return newLease(k.partition, trail, k.ttl, epoch, sent, k.give)
}

// retake takes a partition that this worker holds, for another epoch.
func (k *keeper) retake(ctx context.Context, old *Lease) *Lease {
	select {
	case <-k.give:
		k.free(ctx, old)
		return nil
	default:
	}
	trail, revision := old.next()
	return k.take(ctx, value{Worker: k.worker, Trail: trail}, revision)
}

// own holds a lease until Hold returns. Then the lease has ended, and it is free unless it was
// lost.
func (k *keeper) own(ctx context.Context, l *Lease) (again bool) {
	held, lose := context.WithCancel(ctx)
	defer lose()
	renewing, stop := context.WithCancel(ctx)
	renewed := make(chan struct{})
	go func() {
		defer close(renewed)
		k.renew(renewing, l, func(reason error) {
			k.lost(renewing, l, reason)
			lose()
		})
	}()
	again = k.hold(held, l)
	stop()
	<-renewed
	if !l.end() || ctx.Err() != nil {
		return false // it was lost, or the process ends without a hand-over
	}
	if !again {
		k.free(ctx, l)
	}
	return again
}

// lost ends a lease that was lost. Unless another worker has it already, it then waits for the
// calls that have begun: without their results, their messages would come again. It returns early
// if ctx ends.
func (k *keeper) lost(ctx context.Context, l *Lease, reason error) {
	age := l.age()
	if !l.end() {
		return
	}
	k.complain("a partition was lost: the next owner gets the messages again that are not done", fmt.Errorf("%w, last confirmed %s ago", reason, printable.Duration(age)))
	if errors.Is(reason, errTaken) {
		return
	}
	t := time.NewTimer(k.ttl*grace/10 - age)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// The reasons for the loss of a lease.
var (
	errTaken   = errors.New("another worker has taken it")
	errExpired = errors.New("it was not renewed in time")
	errBehind  = errors.New("the server that answers is behind")
)

// updated is the result of an update.
type updated struct{ err error }

// renew updates the key until ctx ends, or until the lease is lost.
func (k *keeper) renew(ctx context.Context, l *Lease, lost func(reason error)) {
	tick := time.NewTicker(k.ttl / 10)
	defer tick.Stop()
	results := make(chan updated, 1)
	running := false
	var last error // of an update
	update := func() {
		if running {
			return
		}
		running = true
		go func() { results <- updated{k.update(ctx, l)} }()
	}
	defer func() {
		if running {
			<-results
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			update()
		case <-l.write:
			update()
		case result := <-results:
			running, last = false, result.err
			if errors.Is(last, errTaken) {
				lost(last)
				return
			}
		}
		// The update may hang, so each tick looks at the clock, too.
		if !l.Valid() {
			if last != nil {
				lost(fmt.Errorf("%w: %w", errExpired, last))
			} else {
				lost(errExpired)
			}
			return
		}
	}
}

// update confirms the lease once. The error is errTaken if another worker has it; after any other
// one, it may be confirmed nevertheless.
func (k *keeper) update(ctx context.Context, l *Lease) error {
	ctx, cancel := context.WithTimeout(ctx, k.ttl/4)
	defer cancel()
	trail, revision := l.next()
	v := value{Worker: k.worker, Trail: trail}
	sent := time.Now()
	next, err := k.store.Put(ctx, k.partition.String(), v.encode(), revision)
	if err == nil {
		l.confirmed(next, trail, sent)
		return nil
	}
	if !errors.Is(err, ErrChanged) {
		return err
	}
	return k.find(ctx, l, revision)
}

// find looks for an update of this worker whose answer was lost. The error is errTaken if another
// worker has the lease.
func (k *keeper) find(ctx context.Context, l *Lease, held uint64) error {
	v, revision, err := k.look(ctx)
	if err != nil {
		return err
	}
	if revision <= held {
		return errBehind
	}
	if v.Worker != k.worker {
		return errTaken
	}
	l.found(revision)
	return nil
}

// free hands the partition over. The lease has ended before, because the write may be stored and
// its answer lost.
func (k *keeper) free(ctx context.Context, l *Lease) {
	l.end()
	ctx, cancel := context.WithTimeout(ctx, k.ttl)
	defer cancel()
	key := k.partition.String()
	// The freed key has the trail for the next owner. A closed generation has no next owner.
	for ctx.Err() == nil {
		trail, revision := l.next()
		v := value{Trail: trail}
		var err error
		if k.obsolete.Load() {
			err = k.store.Delete(ctx, key, revision)
		} else {
			_, err = k.store.Put(ctx, key, v.encode(), revision)
		}
		if err == nil {
			return
		}
		// An earlier write whose answer was lost raised the revision, or another worker has taken
		// the expired key.
		if now, at, err := k.look(ctx); err == nil && at > revision {
			if now.Worker != k.worker {
				return
			}
			l.found(at)
		}
		select {
		case <-ctx.Done():
		case <-time.After(k.ttl / 20):
		}
	}
	k.complain("a partition could not be freed: another worker takes it when its lease ends", nil)
}

// tidy removes the key of an obsolete partition that a lost lease of this worker has left: as
// no worker takes the partition any more, the key would stay in the bucket.
func (k *keeper) tidy(ctx context.Context) {
	if !k.obsolete.Load() {
		return
	}
	tidying, cancel := context.WithTimeout(ctx, k.ttl)
	defer cancel()
	for tidying.Err() == nil {
		v, revision, err := k.look(tidying)
		if err == nil && v.Worker == k.worker {
			err = k.store.Delete(tidying, k.partition.String(), revision)
		}
		if err == nil {
			return
		}
		select {
		case <-tidying.Done():
		case <-time.After(k.ttl / 20):
		}
	}
	if ctx.Err() == nil {
		k.complain("the key of a partition without messages could not be removed from NATS", nil)
	}
}

// complain logs something that other partitions may have for the same reason.
func (k *keeper) complain(message string, err error) {
	k.complaints.Say(slog.LevelWarn, message, err, slog.String("route", k.route))
	k.log.Debug(message, slog.String("partition", k.partition.String()), slog.Any("err", err)) //nolint:sloglint // the callers have constants
}
