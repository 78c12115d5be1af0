package main

import (
	"context"
	"errors"
	"syscall"
	"time"
)

// losses are the changes of a fault that a program did not tell.
type losses struct {
	lost, of         int
	deletes, deleted int // told, and all
	again            int // statements about changes that were told before
}

// fault is one of the faults.
type fault struct {
	name string // in the heads of the tables
	run  func(context.Context, *scene) (losses, error)
}

func allFaults() []fault {
	return []fault{{"kill", killed}, {"503", refused}, {"API server", interrupted}, {"gap", forgotten}}
}

// fault runs one of the faults with a program.
func (c *comparison) fault(ctx context.Context, who contender, f fault) (r losses, err error) {
	s, err := c.open(ctx, who, c.size.objects)
	if err != nil {
		return r, err
	}
	defer s.end()
	before := s.repeats()
	if r, err = f.run(ctx, s); err != nil {
		return r, err
	}
	r.again = s.repeats() - before
	return r, s.check()
}

// killed: SIGKILL when half of a burst is told. The burst goes on; then objects are made, changed
// and deleted, and the program starts again.
func killed(ctx context.Context, s *scene) (losses, error) {
	type result struct {
		changes []change
		err     error
	}
	burst := make(chan result, 1)
	told := s.statements()
	go func() {
		changes, err := s.batch(ctx, s.ledger, 0, s.changed(0, s.size.objects, s.size.objects))
		burst <- result{changes, err}
	}()
	for until := time.Now().Add(s.size.patience); s.statements() < told+s.size.objects/2 && time.Now().Before(until); {
		if err := sleep(ctx, time.Millisecond); err != nil {
			return losses{}, errors.Join(err, (<-burst).err)
		}
	}
	s.signal(syscall.SIGKILL)
	first := <-burst
	if first.err != nil {
		return losses{}, first.err
	}
	return s.whileDown(ctx, first.changes, nil)
}

// forgotten: SIGKILL, and objects are made, changed and deleted; before the program starts again,
// etcd drops its history and the API server restarts.
func forgotten(ctx context.Context, s *scene) (losses, error) {
	s.signal(syscall.SIGKILL)
	return s.whileDown(ctx, nil, func() error { return s.restartAPIServer(ctx, true) })
}

// whileDown makes, changes and deletes objects while the program is down, starts it, and counts.
// The objects are the last ones, whose changes in a burst were not told yet.
func (s *scene) whileDown(ctx context.Context, changes []change, before func() error) (r losses, err error) {
	began, n, few := time.Now(), s.size.objects, s.size.few
	writes, removed := s.made(laterName, n, n+few), []change(nil)
	if s.work.updated {
		writes = append(writes, s.updated(n-2*few, n-few, n)...)
	} else {
		writes = append(writes, s.made(laterName, n+few, n+2*few)...)
	}
	more, err := s.batch(ctx, s.ledger, 0, writes)
	if err != nil {
		return r, err
	}
	if s.work.updated {
		if removed, err = s.batch(ctx, s.ledger, 0, s.removed(n-few, n)); err != nil {
			return r, err
		}
	}
	if before != nil {
		if err := before(); err != nil {
			return r, err
		}
	}
	if err := sleep(ctx, time.Until(began.Add(s.size.downtime))); err != nil {
		return r, err
	}
	if err := s.begin(ctx, false); err != nil {
		return r, err
	}
	return s.count(ctx, append(changes, more...), removed)
}

// refused: the receiver answers 503 in the middle of changes at a steady rate. An object changes
// several times.
func refused(ctx context.Context, s *scene) (losses, error) {
	edge := s.size.downFor / 4
	time.AfterFunc(edge, func() { s.down.Store(true) })
	time.AfterFunc(edge+s.size.downFor, func() { s.down.Store(false) })
	n := int((s.size.downFor + 2*edge).Seconds() * float64(s.size.rate))
	changes, err := s.batch(ctx, s.ledger, s.size.rate, s.changed(0, n, s.size.objects*2/5))
	if err != nil {
		return losses{}, err
	}
	return s.count(ctx, changes, nil)
}

// interrupted: the API server stops and starts, and then many objects change at once.
func interrupted(ctx context.Context, s *scene) (losses, error) {
	changes, err := s.batch(ctx, s.ledger, s.size.rate, s.changed(0, s.size.beforeAPI, s.size.objects))
	if err != nil {
		return losses{}, err
	}
	if err := errors.Join(s.await(ctx, s.size.patience, changes), s.restartAPIServer(ctx, false)); err != nil {
		return losses{}, err
	}
	n := s.size.beforeAPI + s.size.afterAPI
	more, err := s.batch(ctx, s.ledger, 0, s.changed(s.size.beforeAPI, s.size.afterAPI, s.size.objects))
	if err != nil {
		return losses{}, err
	}
	var removed []change
	if s.work.updated {
		if removed, err = s.batch(ctx, s.ledger, 0, s.removed(n, n+s.size.few)); err != nil {
			return losses{}, err
		}
	}
	return s.count(ctx, append(changes, more...), removed)
}

// count waits until everything is told, or for the patience.
func (s *scene) count(ctx context.Context, changes, removed []change) (losses, error) {
	if err := s.await(ctx, s.size.patience, append(changes[:len(changes):len(changes)], removed...)); err != nil {
		return losses{}, err
	}
	// Repeats may follow.
	if err := sleep(ctx, settle); err != nil {
		return losses{}, err
	}
	return losses{lost: s.lost(changes), of: len(changes), deletes: len(removed) - s.lost(removed), deleted: len(removed)}, nil
}

// removed are deletes of the objects from first to last-1.
func (s *scene) removed(first, last int) (all []write) {
	for i := first; i < last; i++ {
		all = append(all, write{object: objectName(i), do: s.work.remove, delete: true})
	}
	return all
}
