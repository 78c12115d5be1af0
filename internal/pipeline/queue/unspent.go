package queue

import (
	"slices"

	"github.com/deltarouter/deltarouter/internal/rules"
)

// Unspent lists the entries that a limit let pass and of which nothing came.
type Unspent struct{ passes []UnspentPass }

// UnspentPass is the pass of one of them.
type UnspentPass struct {
	Pass       *rules.Pass
	Suppressed int // the count that the delta carried, without the count that waits with the pass
}

// Add notes that nothing comes of e.
func (u *Unspent) Add(e *Entry) {
	if e.Limit.Pass != nil {
		u.passes = append(u.passes, UnspentPass{e.Limit.Pass, max(0, e.Delta.Suppressed-e.Limit.Pass.Waiting)})
	}
}

// Take calls yield with what was added since the last time, the last one first.
func (u *Unspent) Take(yield func(UnspentPass)) {
	for _, p := range slices.Backward(u.passes) {
		yield(p)
	}
	clear(u.passes)
	u.passes = u.passes[:0]
}
