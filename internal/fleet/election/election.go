// Package election elects the leader of a fleet by a Lease of Kubernetes (coordination.k8s.io/v1).
//
// The algorithm is that of leaderelection in client-go. The holder renews the Lease; another member
// takes it when it did not change for its duration, by the monotonic clock of this member. The
// holder counts itself the leader until two thirds of the duration after it sent the last renewal
// that was confirmed, so it stops before another member can take the Lease. Neither depends on the
// wall clock. client-go itself is not used, because its typed clients add 14 MB to the binary, and
// because its callbacks do not tell the time until which the leadership is certain.
//
// A Lease fences nothing: a member that stands still can write after its leadership has ended. The
// streams are fenced by package fence, and deliveries ask [Leadership.Permit].
package election

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/deltarouter/deltarouter/internal/timer"
)

// Config is the configuration of an Elector.
type Config struct {
	URL string // of the API server
	// Client authenticates the router. It is used for nothing else, so that no other request delays
	// a renewal.
	Client *http.Client
	// the Lease, see [Place]
	Namespace, Name string
	// Holder names this process. No other process has the same, now or later.
	Holder string
	// Duration is the time without a renewal after which another member takes the Lease.
	Duration time.Duration
	// Ready reports whether this member is able to lead now; otherwise it leaves the Lease to others.
	// quiet is the time for which it saw no change of the Lease. It is very long if there is none, and
	// if this member had the last term and could not lead, see [Elector.Fail]. nil: it always is.
	Ready func(quiet time.Duration) bool
	Clock timer.Clock // nil: the real one
	Log   *slog.Logger
}

// Place returns the Lease of a fleet. It is in the namespace of the pod of the router, else in the
// namespace default.
func Place(fleet string) (namespace, name string) {
	if namespace = os.Getenv("POD_NAMESPACE"); namespace == "" {
		namespace = "default"
	}
	return namespace, "deltarouter-" + fleet
}

// The parts of the duration of a Lease. With 15 s: a renewal each 2 s, a leader until 10 s after
// the last one, as in client-go. A member that waits looks each second.
func (c *Config) renewDeadline() time.Duration { return c.Duration * 2 / 3 }
func (c *Config) retryPeriod() time.Duration   { return c.Duration * 2 / 15 }
func (c *Config) pollPeriod() time.Duration    { return c.Duration / 15 }

// requestTimeout bounds a request, so that two of them fit before the deadline.
func (c *Config) requestTimeout() time.Duration { return c.renewDeadline() / 2 }

// seconds is the duration in the Lease, which has whole seconds. A longer one is safe: the others
// wait longer.
func (c *Config) seconds() int { return int(math.Ceil(c.Duration.Seconds())) }

// Elector takes part in the election of a leader. It is safe for concurrent use, except
// [Elector.Acquire], which is called by one goroutine at a time.
type Elector struct {
	cfg Config

	mu     sync.Mutex
	seen   record    // the last one that was read
	at     time.Time // when seen was read for the first time
	err    error     // of the last request; nil: it was answered
	mine   record    // by which this member took the Lease last
	failed failures
}

// New returns an Elector that does nothing yet.
func New(cfg Config) *Elector {
	if cfg.Clock == nil {
		cfg.Clock = timer.Real()
	}
	return &Elector{cfg: cfg}
}

// Leader returns the holder of the Lease as this member last saw it; empty: nobody holds it, or it
// was not read yet.
func (e *Elector) Leader() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.seen.holder
}

// Err returns the error of the last request; nil: it was answered.
func (e *Elector) Err() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.err
}

// Acquire waits until this member holds the Lease. The error is that of ctx: other errors are
// logged, and it tries again. The caller must call [Leadership.Release] or [Leadership.Abandon].
func (e *Elector) Acquire(ctx context.Context) (*Leadership, error) {
	wake := make(chan struct{}, 1)
	alarm := e.cfg.Clock.NewTimer(func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	})
	defer alarm.Stop()
	for {
		sent, held, err := e.try(ctx)
		if ctx.Err() != nil && !held {
			return nil, ctx.Err()
		}
		if e.report(err); held {
			return e.begin(ctx, sent), nil
		}
		alarm.Set(e.next())
		select {
		case <-wake:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// report keeps the error of a request, and logs one that is new.
func (e *Elector) report(err error) {
	e.mu.Lock()
	was := e.err
	e.err = err
	e.mu.Unlock()
	if err == nil {
		if was != nil {
			e.cfg.Log.Info("the Lease is read again")
		}
		return
	}
	if was == nil || was.Error() != err.Error() {
		e.cfg.Log.Warn("the Lease of the fleet is out of reach; it is tried again", "lease", e.cfg.Namespace+"/"+e.cfg.Name, "err", err)
	}
}

// next returns the time of the next attempt: when the Lease expires, but not later than the period.
func (e *Elector) next() time.Time {
	now := e.cfg.Clock.Now()
	next := now.Add(e.cfg.pollPeriod())
	e.mu.Lock()
	defer e.mu.Unlock()
	if until := e.until(); until.After(now) && until.Before(next) {
		return until
	}
	return next
}

// until returns the time until which this member must not take the Lease. mu is held.
func (e *Elector) until() time.Time {
	if e.seen.holder == e.cfg.Holder {
		return time.Time{}
	}
	if e.seen.holder != "" {
		return e.at.Add(e.seen.duration)
	}
	if e.seen.preferred != "" && e.seen.preferred != e.cfg.Holder {
		return e.at.Add(e.cfg.Duration)
	}
	return time.Time{}
}

// try takes the Lease if it may. sent is the time at which the request that took it was sent.
func (e *Elector) try(ctx context.Context) (sent time.Time, held bool, err error) {
	now, err := e.read(ctx)
	missing := errors.Is(err, errNotFound)
	if err != nil && !missing {
		return sent, false, err
	}
	e.observe(now, err)
	e.mu.Lock()
	// Of a Lease that was deleted, the last holder may still lead.
	at := e.cfg.Clock.Now()
	free, quiet := !at.Before(e.until()) && !at.Before(e.failed.until), at.Sub(e.at)
	if missing || e.last() {
		quiet = math.MaxInt64
	}
	e.mu.Unlock()
	if !free || e.cfg.Ready != nil && !e.cfg.Ready(quiet) {
		return sent, false, nil
	}
	// The term counts from here, because the answer may take as long as the Lease.
	sent = e.cfg.Clock.Now()
	if missing {
		now, err = e.create(ctx, sent)
	} else {
		now, err = e.patch(ctx, now.version, e.taken(&now, sent))
	}
	if e.observe(now, err); err == nil {
		e.mu.Lock()
		e.mine = now
		e.mu.Unlock()
	}
	return sent, err == nil, refused(err)
}

// refused drops the error of a request that came second: another member was faster.
func refused(err error) error {
	if errors.Is(err, errConflict) {
		return nil
	}
	return err
}

// observe keeps a record. The time of an unchanged one stays.
func (e *Elector) observe(r record, err error) {
	if err != nil {
		return
	}
	now := e.cfg.Clock.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	if r.version != e.seen.version {
		e.seen, e.at = r, now
	}
}

// errNoStandby: see RequestHandover.
var errNoStandby = errors.New("nobody leads: the fleet is about to elect a leader")

// RequestHandover asks the leader to hand over to this member. The leader notices it at its next
// renewal, see [Leadership.Asked].
func (e *Elector) RequestHandover(ctx context.Context) error {
	now, err := e.read(ctx)
	if err != nil {
		return fmt.Errorf("the Lease %s/%s cannot be read: %w", e.cfg.Namespace, e.cfg.Name, err)
	}
	if now.holder == e.cfg.Holder {
		return errors.New("this member leads already")
	}
	if now.holder == "" {
		return errNoStandby
	}
	patch := map[string]any{"metadata": map[string]any{"annotations": map[string]any{handoverTo: e.cfg.Holder}}}
	if _, err := e.send(ctx, http.MethodPatch, e.url(), patch); err != nil {
		return fmt.Errorf("the Lease %s/%s was not changed: %w", e.cfg.Namespace, e.cfg.Name, err)
	}
	return nil
}
