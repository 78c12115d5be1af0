package timer

import (
	"math/bits"
	"sync"
	"time"
)

// Wheel holds the timers of a process, millions of them: to set one and to stop it costs about a
// tenth of a microsecond, and it takes no more memory than its [Node]. It has one Timer of its
// Clock, and no goroutine.
//
// It is a hierarchy of wheels, each of 64 slots: those of the lowest are a millisecond long, those
// of the next 64, and so on. A timer stands in the lowest wheel whose present round has its time.
// When the time comes to a slot of a higher wheel, what is in it is dealt out to the lower ones.
// Within a slot of the lowest each timer still has its own time: none is called before it, nor
// later than the Clock can.
//
// Its methods may be called under a lock of the caller's, which [Owner.Due] may take too.
type Wheel struct {
	clock Clock
	base  time.Time

	mu     sync.Mutex
	timer  Timer
	wake   time.Duration // that timer is set to; never: it is not
	tick   uint64        // every slot before that is empty
	levels [wheelLevels]wheel
	// the head of those whose time has come, and whose owners have not been called yet
	due      Node
	n        int
	expiring bool
	closed   bool
}

const (
	tickLength  = 1 << 20 // a slot of the lowest wheel, in nanoseconds
	slotBits    = 6
	wheelLevels = 8 // more than a Duration holds
)

// wheel is one of the hierarchy.
type wheel struct {
	used  uint64 // a bit for each slot in which there may be something
	slots [1 << slotBits]Node
}

// Node is a timer, as a part of what it is the timer of. It must not be copied. The zero value is
// one that is not set, and [Wheel.Set] sets it.
type Node struct {
	next, prev *Node // in a ring; nil: it is not set
	at         time.Duration
	owner      Owner
}

// Owner is what a timer belongs to.
type Owner interface {
	// Due is called once the time has come that the timer was set to, without a lock of the Wheel.
	// The timer is not set then, unless it was set again meanwhile: who takes a lock here looks
	// whether it is still the time. It must not block.
	Due(n *Node)
}

// At returns the time that a timer was last set to, as it stands in the time of its Wheel: see
// [Wheel.In].
func (n *Node) At() time.Duration { return n.at }

// NewWheel makes a Wheel without timers. Its time begins now.
func NewWheel(clock Clock) *Wheel {
	w := &Wheel{clock: clock, base: clock.Now(), wake: never}
	w.timer = clock.NewTimer(w.expire)
	for l := range w.levels {
		for s := range w.levels[l].slots {
			w.levels[l].slots[s].clear()
		}
	}
	w.due.clear()
	return w
}

// In returns a time as the time that has gone by since the Wheel was made: by the monotonic clock,
// if t has its reading, so that a wall clock that jumps means nothing.
func (w *Wheel) In(t time.Time) time.Duration { return t.Sub(w.base) }

// Now is [Wheel.In] for the present.
func (w *Wheel) Now() time.Duration { return w.In(w.clock.Now()) }

// Len returns how many timers are set.
func (w *Wheel) Len() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.n
}

// Set sets a timer, or sets it to another time. If that is over, its owner is called soon, but not
// by Set.
func (w *Wheel) Set(n *Node, at time.Duration, owner Owner) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	if n.next != nil {
		n.unlink()
		w.n--
	}
	n.at, n.owner = at, owner
	w.insert(n)
	w.n++
	if n.at < w.wake && !w.expiring {
		w.rouse(n.at)
	}
}

// Stop has the owner of a timer not called any more, but for a call that has begun. It may be one
// that is not set.
func (w *Wheel) Stop(n *Node) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n.next != nil {
		n.unlink()
		w.n--
	}
}

// Close stops all timers for good.
func (w *Wheel) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	w.timer.Stop()
}

// insert puts a timer where it belongs. mu is held.
func (w *Wheel) insert(n *Node) {
	tick := max(uint64(max(n.at, 0)/tickLength), w.tick) //nolint:gosec // not negative
	level := (63 - bits.LeadingZeros64((tick^w.tick)|1)) / slotBits
	slot := tick >> (level * slotBits) & (1<<slotBits - 1)
	w.levels[level].used |= 1 << slot
	n.pushTo(&w.levels[level].slots[slot])
}

// first returns the earliest slot in which there is something, and the tick that it begins with. mu
// is held.
func (w *Wheel) first() (head *Node, level int, tick uint64, ok bool) {
	for level := range w.levels {
		l, shift := &w.levels[level], level*slotBits
		current := (w.tick >> shift) & (1<<slotBits - 1)
		for used := l.used &^ (1<<current - 1); used != 0; used &= used - 1 {
			slot := bits.TrailingZeros64(used)
			if head = &l.slots[slot]; head.next != head {
				round := w.tick >> (shift + slotBits) << (shift + slotBits)
				return head, level, max(round+uint64(slot)<<shift, w.tick), true //nolint:gosec // less than 64
			}
			l.used &^= 1 << slot
		}
	}
	return nil, 0, 0, false
}

// collect takes out what is due. mu is held.
func (w *Wheel) collect(now time.Duration) {
	present := max(uint64(max(now, 0)/tickLength), w.tick) //nolint:gosec // not negative
	for {
		head, level, tick, ok := w.first()
		if !ok || tick > present {
			break
		}
		w.tick = tick
		var later Node
		later.clear()
		for n := head.next; n != head; n = head.next {
			n.unlink()
			switch {
			case level > 0:
				w.insert(n)
			case n.at <= now:
				n.pushTo(&w.due)
			default:
				n.pushTo(&later)
			}
		}
		if level == 0 && later.next != &later { // of the present slot
			for n := later.next; n != &later; n = later.next {
				n.unlink()
				n.pushTo(head)
			}
			return
		}
	}
	w.tick = present
}

// next returns when to look again. mu is held.
func (w *Wheel) next() time.Duration {
	head, level, tick, ok := w.first()
	switch {
	case !ok:
		return never
	case level > 0:
		return time.Duration(tick) * tickLength //nolint:gosec // of a Duration
	}
	earliest := time.Duration(never)
	for n := head.next; n != head; n = n.next {
		earliest = min(earliest, n.at)
	}
	return earliest
}

func (w *Wheel) rouse(at time.Duration) {
	w.wake = at
	if at < never {
		w.timer.Set(w.base.Add(at))
	}
}

// expire calls the owners of what is due.
func (w *Wheel) expire() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.expiring {
		return // the other one goes on until nothing is due
	}
	w.expiring = true
	for !w.closed {
		w.collect(w.Now())
		n := w.due.next
		if n == &w.due {
			break
		}
		for ; n != &w.due && !w.closed; n = w.due.next {
			n.unlink()
			w.n--
			w.call(n, n.owner)
		}
	}
	w.expiring = false
	if !w.closed {
		w.rouse(w.next())
	}
}

// call calls an owner without the lock.
func (w *Wheel) call(n *Node, owner Owner) {
	w.mu.Unlock()
	defer w.mu.Lock()
	owner.Due(n)
}

func (n *Node) clear() { n.next, n.prev = n, n }

// pushTo puts a node at the end of a ring.
func (n *Node) pushTo(head *Node) {
	n.next, n.prev = head, head.prev
	head.prev.next, head.prev = n, n
}

func (n *Node) unlink() {
	n.prev.next, n.next.prev = n.next, n.prev
	n.next, n.prev = nil, nil
}
