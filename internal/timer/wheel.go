package timer

import (
	"math/bits"
	"sync"
	"time"
)

// Wheel holds the timers of a process, up to millions of them. Setting or stopping one takes about
// a tenth of a microsecond, and no memory beside its [Node]. The Wheel has one Timer of its Clock,
// and no goroutine.
//
// It is a hierarchy of wheels of 64 slots each: a slot of the lowest wheel is a millisecond long, a
// slot of the next one 64 milliseconds, and so on. A timer is in the lowest wheel whose present
// round includes its time. When a slot of a higher wheel is reached, its timers move to lower
// wheels. Within a slot of the lowest wheel each timer still has its own time: no timer is called
// early, and none later than the Clock permits.
//
// Its methods may be called under a lock of the caller that [Owner.Due] takes, too.
type Wheel struct {
	clock Clock
	base  time.Time

	mu     sync.Mutex
	timer  Timer
	wake   time.Duration // the time that timer is set to; never: it is not set
	tick   uint64        // every earlier slot is empty
	levels [wheelLevels]wheel
	// the head of the expired timers whose owners have not been called yet
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

// wheel is one wheel of the hierarchy.
type wheel struct {
	used  uint64 // a bit for each slot that may contain timers
	slots [1 << slotBits]Node
}

// Node is a timer, embedded in the value that owns it. It must not be copied. The zero value is not
// set; [Wheel.Set] sets it.
type Node struct {
	next, prev *Node // in a ring; nil: it is not set
	at         time.Duration
	owner      Owner
}

// Owner is notified when its timer expires.
type Owner interface {
	// Due is called once when the timer expires, without a lock of the Wheel. The timer is not set
	// during the call, unless it was set again concurrently; an owner that takes a lock here must
	// check whether it is still due. It must not block.
	Due(n *Node)
}

// At returns the time that a timer was last set to, in the time of its Wheel: see [Wheel.In].
func (n *Node) At() time.Duration { return n.at }

// NewWheel returns a Wheel without timers. Its time begins now.
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

// In converts a time to the duration since the Wheel was made. It uses the monotonic reading of t
// if there is one, so a jump of the wall clock has no effect.
func (w *Wheel) In(t time.Time) time.Duration { return t.Sub(w.base) }

// Now is [Wheel.In] for the present.
func (w *Wheel) Now() time.Duration { return w.In(w.clock.Now()) }

// Len returns the number of timers that are set.
func (w *Wheel) Len() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.n
}

// Set sets a timer, or changes its time. A time in the past causes a call soon, but never from
// within Set.
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

// Stop cancels a timer, unless the call of its owner has begun. The timer need not be set.
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

// insert puts a timer into its slot. mu is held.
func (w *Wheel) insert(n *Node) {
	tick := max(uint64(max(n.at, 0)/tickLength), w.tick) //nolint:gosec // not negative
	level := (63 - bits.LeadingZeros64((tick^w.tick)|1)) / slotBits
	slot := tick >> (level * slotBits) & (1<<slotBits - 1)
	w.levels[level].used |= 1 << slot
	n.pushTo(&w.levels[level].slots[slot])
}

// first returns the earliest slot that is not empty, and its first tick. mu is held.
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

// collect moves the expired timers to due. mu is held.
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

// next returns the time of the next expiry. mu is held.
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

// expire calls the owners of the expired timers.
func (w *Wheel) expire() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.expiring {
		return // the other call goes on until no timer is due
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
