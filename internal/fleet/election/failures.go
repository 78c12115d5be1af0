package election

import (
	"time"

	"github.com/deltarouter/deltarouter/internal/backoff"
)

// Patience is the time for which a member whose state file never had all of the leader's leaves the
// Lease to others: one of them may have that state.
const Patience = 2 * time.Minute

const (
	// maxDelay bounds the time after which a member that could not lead takes the Lease again.
	maxDelay = time.Minute
	// After each turns failures in a row, the delay is turn. Each term ends the quiet of the Lease
	// that a member without state waits for, so this one would wait for ever.
	turns = 10
	turn  = Patience * 3 / 2
	// remindAfter is the time after which an unchanged reason is logged again.
	remindAfter = 10 * time.Minute
)

// failures are the terms in a row that this member had to give back. mu of the Elector guards them.
type failures struct {
	n      int
	err    error // of the last one
	until  time.Time
	logged time.Time
}

// Fail is called when this member could not lead: it takes the Lease again after a short delay,
// which grows, so that another one may take it; the shortest is longer than the others take to
// look. The reason is logged if it is new, and then from time to time.
func (e *Elector) Fail(err error) {
	e.mu.Lock()
	f, now := &e.failed, e.cfg.Clock.Now()
	news := f.err == nil || f.err.Error() != err.Error() || now.Sub(f.logged) >= remindAfter
	f.n, f.err = f.n+1, err
	attempts, delay := f.n, backoff.Policy{Min: e.cfg.Duration / 5, Max: maxDelay}.Delay(f.n)
	if f.n%turns == 0 {
		delay = turn
	}
	if f.until = now.Add(delay); news {
		f.logged = now
	}
	e.mu.Unlock()
	if news {
		e.cfg.Log.Error("fleet: this member could not lead: it tries again, unless another one leads", "attempts", attempts, "next", delay, "err", err)
	}
}

// Succeed is called when this member leads.
func (e *Elector) Succeed() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.failed = failures{}
}

// Failure returns the reason why this member could not lead, unless another one has led since; nil:
// it could.
func (e *Elector) Failure() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.last() {
		return nil
	}
	return e.failed.err
}

// last reports whether this member had the last term of all, and could not lead. mu is held.
func (e *Elector) last() bool {
	return e.failed.n > 0 && e.mine.uid == e.seen.uid && e.mine.transitions == e.seen.transitions
}
