// Package backoff computes how long to wait before something that failed is tried again.
//
// The Backoff of k8s.io/apimachinery computes each wait from the one before and only adds jitter. A
// route saves the number of its attempts instead, and its configured maximum is one.
package backoff

import (
	"context"
	"math/rand/v2"
	"time"
)

// Policy is a wait that begins with Min and doubles from failure to failure, up to Max.
type Policy struct {
	Min, Max time.Duration
	Exact    bool // false: each wait is shorter by up to half, at random
}

// Delay returns the wait after the n-th failure in a row; 0 if n is less than 1. It keeps no state:
// a caller that saves n goes on after a restart as before.
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

// Reset begins a new series: nothing has failed.
func (s *Series) Reset() { s.failures = 0 }

// Next counts a failure and returns the wait after it.
func (s *Series) Next() time.Duration {
	s.failures++
	return s.Delay(s.failures)
}

// Wait counts a failure and waits, at least as long as the other side asks for. It returns ctx's
// error when ctx ends first.
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
