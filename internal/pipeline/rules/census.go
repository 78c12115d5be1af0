package rules

import (
	"hash/maphash"
	"math/bits"
	"sync/atomic"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// Census is a counting filter over the objects that the conditions of a process track. Most objects
// are tracked by no condition, and the filter finds that out with one memory access. Without it,
// each deleted object would be looked up in the conditions of every route. It is safe for
// concurrent use.
type Census struct {
	seed   maphash.Seed
	places [1 << 16]atomic.Int32 // the number of tracked objects for each hash modulo the size
}

// NewCensus returns a filter without objects.
func NewCensus() *Census { return &Census{seed: maphash.MakeSeed()} }

// MayContain reports whether a condition may track an object. False is certain.
func (c *Census) MayContain(source string, key event.Key) bool {
	return c.place(c.hash(source, key)).Load() > 0
}

func (c *Census) place(hash uint64) *atomic.Int32 { return &c.places[hash%uint64(len(c.places))] }

func (c *Census) hash(source string, key event.Key) uint64 {
	h := maphash.String(c.seed, key.Name)
	h = bits.RotateLeft64(h, 21) ^ maphash.String(c.seed, key.Namespace)
	return bits.RotateLeft64(h, 21) ^ maphash.String(c.seed, source)
}
