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
	// cel.Budget: about a quarter of the CPU time of one core.
	PerSecond = 2_500_000
	// burst is the allowance of an owner that was idle.
	burst = PerSecond
	// maxDebt is what an owner owes at most, so that its allowance returns within ten seconds.
	maxDebt = 10 * PerSecond
	// unit is the time of a unit of cost.
	unit = time.Second / 4 / PerSecond
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

// Price returns the cost that evaluations are charged, of which the cost and the time are known:
// the time counts if it is longer, because the process gets less CPU than it could use.
func Price(cost int, took time.Duration) int { return max(cost, int(took/unit)) }

// Now returns the time of the clock with which Price is measured.
func (o *Owner) Now() time.Time { return o.clock.Now() }

// Charge subtracts a price.
func (o *Owner) Charge(price int) {
	if o == nil || price <= 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.refill()
	o.left = max(o.left-price, -maxDebt)
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
