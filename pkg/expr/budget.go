package expr

import (
	"errors"
	"fmt"

	"github.com/google/cel-go/cel"
)

// budgetLimit is what the evaluations that share a budget may cost together: as much as ten that reach their own limit.
const budgetLimit = 10 * costLimit

// Budget bounds what several evaluations cost together, those of all routes for one delta: each may be fine by itself, and a thousand of
// them still hold up a source. What counts is CEL's cost where it is tracked, and what was read. The zero Budget is full. It belongs to one
// goroutine.
type Budget struct {
	spent uint64
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

// spend takes the cost of one evaluation, of which read bytes were read.
func (b *Budget) spend(p *Program, details *cel.EvalDetails, read int, err error) {
	if b == nil {
		return
	}
	b.spent += uint64(max(0, read)) / bytesPerCost
	switch {
	case errors.Is(err, ErrCost):
		b.spent += uint64(p.limit)
	case details != nil && details.ActualCost() != nil:
		b.spent += *details.ActualCost()
	}
}
