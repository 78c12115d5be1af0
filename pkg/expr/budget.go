package expr

import "fmt"

// budgetLimit is what the evaluations that share a budget may cost together: as much as ten that reach their own limit.
const budgetLimit = 10 * costLimit

// Budget bounds what several evaluations cost together, those of all routes for one delta: each may be fine by itself, and a thousand of
// them still hold up a source. The zero Budget is full. It belongs to one goroutine.
type Budget struct {
	spent int
}

// Refill makes the budget full again.
func (b *Budget) Refill() { b.spent = 0 }

// overdrawn is the error of an evaluation that finds nothing left.
func (b *Budget) overdrawn() error {
	if b == nil || b.spent < budgetLimit {
		return nil
	}
	return &EvalError{Reason: fmt.Sprintf("the routes together have reached the limit of %d for one delta", budgetLimit), class: ErrCost}
}

// spend takes the cost of one evaluation.
func (b *Budget) spend(cost int) {
	if b != nil {
		b.spent += cost
	}
}
