package queue

import (
	"slices"

	"github.com/deltarouter/deltarouter/internal/pipeline/rules"
)

// Unspent lists the limit passes of entries that ended without an event.
type Unspent struct{ passes []UnspentPass }

// UnspentPass is one of these passes.
type UnspentPass struct {
	Pass       *rules.Pass
	Suppressed int // the count that the delta carried, without Pass.Waiting
}

// Add records the pass of an entry that ends without an event.
func (u *Unspent) Add(e *Entry) {
	if e.Limit.Pass != nil {
		u.passes = append(u.passes, UnspentPass{e.Limit.Pass, max(0, e.Delta.Suppressed-e.Limit.Pass.Waiting)})
	}
}

// Take calls yield with the passes added since the last call, the last one first.
func (u *Unspent) Take(yield func(UnspentPass)) {
	for _, p := range slices.Backward(u.passes) {
		yield(p)
	}
	clear(u.passes)
	u.passes = u.passes[:0]
}
