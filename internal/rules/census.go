package rules

import (
	"hash/maphash"
	"math/bits"
	"sync/atomic"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// Census tells quickly that no condition of a process knows an object, which is so of most objects:
// of routes whose filters are looked up rather than asked, nobody would otherwise find those that
// have to hear that a condition has ended. It is safe for concurrent use.
type Census struct {
	seed   maphash.Seed
	places [1 << 16]atomic.Int32 // how many conditions have a hash that ends so
}

// NewCensus makes one without objects.
func NewCensus() *Census { return &Census{seed: maphash.MakeSeed()} }

// May reports whether a condition may know an object. If it says no, none does.
func (c *Census) May(source string, key event.Key) bool {
	return c.place(c.hash(source, key)).Load() > 0
}

func (c *Census) place(hash uint64) *atomic.Int32 { return &c.places[hash%uint64(len(c.places))] }

func (c *Census) hash(source string, key event.Key) uint64 {
	h := maphash.String(c.seed, key.Name)
	h = bits.RotateLeft64(h, 21) ^ maphash.String(c.seed, key.Namespace)
	return bits.RotateLeft64(h, 21) ^ maphash.String(c.seed, source)
}
