package meter

// cheap is the weight of what may be charged although a branch may leave it out: it saves charges
// of their own, at most as much as the charge it joins, or this.
const cheap = 16

// none is the charge of code that cannot be reached.
const none = -1

// edit is something to insert before a place in a function's body.
type edit struct {
	place
	weight int64 // editCharge: 0: nothing, it joined another
	extra  int64 // editCharge: what joined it
	joined int32 // editCharge: the charge that it joined, or none
	scale  scale // editSized
	kind   editKind
	state  chargeState
	cached bool // the fuel is in a local, see cacheLoops
	pauses bool // editCharge: the guest may pause here, see pause.go
	again  bool // then the loop begins anew
	bulk   byte // editSized: the instruction, see bulk.go
}

// place is one in a body.
type place struct {
	at int32 // bytes from its start
	// depth counts the blocks that are open, the function's own included. Of an editStore it is the
	// outermost that is gone to, of an editPause the label where it goes on.
	depth int32
}

type editKind uint8

const (
	editCharge editKind = iota // takes weight from the fuel, and traps if there is none
	editSized                  // the same, by the size on top of the stack
	editCall                   // says how much stack is in use
	editLoad                   // takes the fuel into a local, if cached
	editStore                  // puts it back, if cached
	editPause                  // lets the guest pause, see pause.go
	// takes the place of a ref.func of extra bytes: weight is the function
	editRef
)

// chargeState: a charge is open while the code after it is read. Then it stays or joins the one
// before. One that is forced stays.
type chargeState uint8

const (
	open chargeState = iota
	stays
	forced
	deferred // paid by all that follow it
)

// charges are the edits of a body in the order of their places, and what is known at the place that
// is read: which of them pays for it, and how long ago the guest paused.
//
// The gap is the weight of what may have been executed since the last pause or function entry, on
// the way there that has most of it. Loop heads pause, and functions that call others do when they
// are entered. That leaves code without loops, which may be as long as a module, the code behind
// calls, which may be many deep when they all return, and functions that call none. So a pause is
// put in wherever the gap would get larger than longestGap. What a call returns from may have a gap
// as large, so an access to memory behind a call is behind a pause, too; only little that takes no
// time is not.
type charges struct {
	edits   []edit
	current int   // the edit that pays for what is read now, or none
	parent  int   // the charge that it may join
	gap     int64 // as above
	called  int32 // where the last call ends
	pauses  bool  // the guest does
	sized   bool  // some depend on a size
	blocks  int   // that the edits add, see Config.MaxBlocks
}

// longestGap is the largest gap at which memory is accessed or another function is called that may
// not pause itself.
const longestGap = 1000

func (c *charges) reachable() bool { return c.current != none }

// add adds an edit where code can be reached.
func (c *charges) add(e edit) {
	if c.reachable() {
		c.edits = append(c.edits, e)
	}
}

// pay adds a weight to the charge of what is read now.
func (c *charges) pay(weight int64) {
	if c.reachable() {
		c.edits[c.current].weight += weight
		c.gap += weight
	}
}

// paySized adds a charge of its own for an instruction with a size.
func (c *charges) paySized(at place, in instruction) {
	if !c.reachable() {
		return
	}
	c.keepGap(at, true)
	c.gap += int64(in.weight)
	c.sized = true
	c.blocks += sizedBlocks
	c.add(edit{place: at, kind: editSized, scale: in.scale, weight: int64(in.weight), bulk: in.bulk})
}

// begin opens a charge at a place. What follows joins parent if it is cheap.
func (c *charges) begin(at place, state chargeState, parent int) {
	c.edits = append(c.edits, edit{place: at, kind: editCharge, joined: none, state: state})
	c.current, c.parent = len(c.edits)-1, parent
}

// settle decides about the charge that is open: it stays, or joins its parent if that is not much
// more for it.
func (c *charges) settle() {
	if !c.reachable() || c.edits[c.current].state != open {
		return
	}
	e, p := &c.edits[c.current], &c.edits[c.parent]
	if p.state == stays || p.state == forced {
		if sum := p.extra + e.weight; sum <= max(cheap, p.weight-p.extra) {
			p.extra, p.weight = sum, p.weight+e.weight
			e.joined, e.weight = int32(c.parent), 0
			return
		}
	}
	e.state = stays
}

// resume goes on at a place that a charge dominates. If it is certain that the place is reached
// once it is paid, it pays for what follows too.
func (c *charges) resume(at place, charge int, certain bool) {
	own := c.edits[charge].joined == none
	for c.edits[charge].joined != none {
		charge = int(c.edits[charge].joined)
	}
	switch {
	case c.edits[charge].state == deferred:
		c.begin(at, forced, charge)
	case certain && own:
		c.current, c.parent = charge, none
	default:
		c.begin(at, open, charge)
	}
}

// branch goes on after something that may branch.
func (c *charges) branch(next place) {
	if c.reachable() {
		c.settle()
		c.resume(next, c.current, false)
	}
}

// leave goes on after something that does not come back.
func (c *charges) leave() {
	c.settle()
	c.current = none
}

// postpone leaves out a charge that is small and that nothing joined, so that all that follow it
// pay, and returns its weight.
func (c *charges) postpone(charge int) (weight int64, ok bool) {
	e := &c.edits[charge]
	if e.state != forced || e.extra > 0 || e.weight > cheap/2 {
		return 0, false
	}
	weight = e.weight
	e.state, e.weight = deferred, 0
	return weight, true
}

// keepGap puts in a pause before an instruction if the gap is too large for it.
func (c *charges) keepGap(at place, heavy bool) {
	if c.gap >= longestGap && (heavy || c.gap >= longestGap+cheap) && c.pauses && c.reachable() {
		c.pause(at)
	}
}

func (c *charges) pause(at place) {
	// A charge that has just begun will do.
	if e := &c.edits[c.current]; c.current != len(c.edits)-1 || e.state == deferred || e.weight > cheap || e.at < c.called {
		c.settle()
		c.begin(at, forced, none)
	}
	e := &c.edits[c.current]
	e.state, e.pauses = forced, true
	c.gap = e.weight
	c.blocks++
}

// call notes a call: the function that returns may not have paused for long.
func (c *charges) call(next place, imported bool) {
	c.gap = longestGap
	if imported {
		c.gap = 0 // it left compiled code
	}
	c.called = next.at
}

// join notes that another way with a gap leads to the place.
func (c *charges) join(gap int64) {
	if !c.reachable() {
		c.gap = 0
	}
	c.gap = max(c.gap, gap)
}

// cache keeps the fuel in a local within a loop.
func (c *charges) cache(l span) {
	c.edits[l.from].cached = true
	for i := l.from + 1; i < l.to; i++ {
		e := &c.edits[i]
		e.cached = e.kind == editCharge || e.kind == editSized || e.kind == editPause || e.kind == editStore && int(e.depth) < l.depth
	}
}
