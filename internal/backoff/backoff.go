// Package backoff computes the delay before a retry.
//
// The Backoff of k8s.io/apimachinery computes each delay from the previous one and only adds
// jitter. A route saves the number of its attempts instead, and its configured maximum is never
// exceeded.
package backoff

import (
	"context"
	"math/rand/v2"
	"time"
)

// Policy is a delay that begins with Min and doubles with each failure, up to Max.
type Policy struct {
	Min, Max time.Duration
	Exact    bool // false: each delay is shortened by up to half, at random
}

// Delay returns the delay after the n-th failure in a row; 0 if n is less than 1. It has no state,
// so a caller that saves n continues after a restart.
func (p Policy) Delay(n int) time.Duration {
	if n < 1 {
		return 0
	}
	d := p.Max
	if n < 64 && p.Min <= p.Max>>(n-1) {
		d = p.Min << (n - 1)
	}
	if p.Exact {
		return d
	}
	return d/2 + rand.N(d/2+1)
}

// Series counts failures in a row. It is not safe for concurrent use.
type Series struct {
	Policy

	failures int
}

// Reset begins a new series without failures.
func (s *Series) Reset() { s.failures = 0 }

// Next counts a failure and returns the delay after it.
func (s *Series) Next() time.Duration {
	s.failures++
	return s.Delay(s.failures)
}

// Wait counts a failure and waits for its delay, or for atLeast if that is longer. It returns the
// error of ctx if ctx is done before.
func (s *Series) Wait(ctx context.Context, atLeast time.Duration) error {
	t := time.NewTimer(max(s.Next(), atLeast))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
