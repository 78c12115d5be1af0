// Package allowance limits the CPU that the expressions of an owner's routes take from the sources
// of a shared router. A source evaluates filters one delta after the other, so costly filters of a
// team would delay the deltas of all others.
//
// An [Owner] is asked before such an evaluation, see [Owner.Left], and charged after it. Beyond the
// allowance, the worker of the route evaluates the filter, and the watch goes on.
package allowance

import (
	"context"
	"sync"
	"time"

	"github.com/deltarouter/deltarouter/internal/timer"
)

const (
	// PerSecond is the cost that the expressions of an owner may have in a second, in the units of
	// expr.Budget: about a quarter of the CPU time of one core.
	PerSecond = 2_500_000
	// burst is the allowance of an owner that was idle.
	burst = PerSecond
)

// Owners has the allowance of each owner. It is safe for concurrent use. A nil Owners has none: no
// expression is limited.
type Owners struct {
	clock timer.Clock

	mu     sync.Mutex
	owners map[string]*Owner
}

// New returns Owners whose allowances are full.
func New(clock timer.Clock) *Owners { return &Owners{clock: clock, owners: map[string]*Owner{}} }

// Of returns an owner by the prefix of its routes; nil, which has no limit, for the routes of the
// configuration itself, whose prefix is empty.
func (o *Owners) Of(prefix string) *Owner {
	if o == nil || prefix == "" {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.owners[prefix] == nil {
		o.owners[prefix] = &Owner{
			Name: prefix, clock: o.clock, left: burst, at: o.clock.Now(), evaluating: make(Turn, 1), rescanning: make(Turn, 1),
		}
	}
	return o.owners[prefix]
}

// Owner is the allowance of one owner: a token bucket. It is safe for concurrent use. A nil Owner
// has no limit.
type Owner struct {
	Name string

	clock                  timer.Clock
	evaluating, rescanning Turn

	mu   sync.Mutex
	left int // at time at; negative: a debt
	at   time.Time
}

// Left returns the cost that the expressions of the owner may have now; 0 or less: none.
func (o *Owner) Left() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.refill()
	return o.left
}

// Charge subtracts the cost of evaluations. The debt is that of one second at most, so that the
// allowance returns soon after a single costly delta.
func (o *Owner) Charge(cost int) {
	if o == nil || cost <= 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.refill()
	o.left = max(o.left-cost, -PerSecond)
}

// refill is called under the lock.
func (o *Owner) refill() {
	now := o.clock.Now()
	if elapsed := now.Sub(o.at); elapsed > 0 {
		o.left = int(min(burst, float64(o.left)+elapsed.Seconds()*PerSecond))
	}
	o.at = now
}

// Evaluating is the turn of the workers that evaluate filters for which the allowance had nothing
// left: those of an owner take one core together. nil: there is no limit.
func (o *Owner) Evaluating() Turn {
	if o == nil {
		return nil
	}
	return o.evaluating
}

// Rescanning is the turn of the routes that evaluate conditions again.
func (o *Owner) Rescanning() Turn {
	if o == nil {
		return nil
	}
	return o.rescanning
}

// Turn lets one caller at a time go on. A nil Turn lets all.
type Turn chan struct{}

// Take waits for the turn. It returns false, without the turn, when ctx is done.
func (t Turn) Take(ctx context.Context) bool {
	if t == nil {
		return ctx.Err() == nil
	}
	select {
	case t <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// Give gives the turn back.
func (t Turn) Give() {
	if t != nil {
		<-t
	}
}
