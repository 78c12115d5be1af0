package meter

// joint is the weight up to which code after a branch may join an earlier charge. A joined charge
// saves a charge of its own; it adds at most the earlier charge's weight, or joint.
const joint = 32

// cheap is a weight that needs no pause before it.
const cheap = 16

// none is the charge of unreachable code.
const none = -1

// edit is an insertion at a place in a function's body.
type edit struct {
	place
	weight int64 // editCharge: 0 if it joined another charge
	extra  int64 // editCharge: the weight that joined it
	joined int32 // editCharge: the charge that this one joined, or none
	scale  scale // editSized
	kind   editKind
	state  chargeState
	cached bool // the fuel is in a local, see cacheLoops
	pauses bool // editCharge: the guest may pause here, see pause.go
	again  bool // the loop starts again after the pause
	bulk   byte // editSized: the instruction, see pause.go
}

// place is a position in a body.
type place struct {
	at int32 // byte offset from the start of the body
	// depth is of an editStore the outermost frame that a branch reaches, of an editPause the label
	// of the branch.
	depth int32
}

type editKind uint8

const (
	editCharge editKind = iota // takes weight from the fuel
	editSized                  // takes fuel according to the size on top of the stack
	editHost                   // stores the stack in use behind a call of the host
	editReturn                 // replaces a return by a branch of a function that counts its stack
	editCold                   // checks the guest before a cold call
	editLoad                   // copies the fuel into a local, if cached
	editStore                  // copies the fuel back, if cached
	editPause                  // lets the guest pause, see pause.go
	// editRef replaces a ref.func of extra bytes. Its weight is the function.
	editRef
)

// chargeState is the state of a charge. A charge is open while the code after it is read; then it
// stays or joins the charge before. A forced charge always stays.
type chargeState uint8

const (
	open chargeState = iota
	stays
	forced
	deferred // all charges that follow it pay its weight
)

// charges holds the edits of a body in the order of their places, and the state at the current
// place: the charge that pays for it, and the gap.
//
// The gap is the largest weight that can have been executed since the last pause or function entry
// on any way to the place. Loop heads pause, and so do chosen functions and those that call by a
// chosen type, at their entry and before they return, see graph. All other code has no loops and no
// cycles of calls, but may be as long as a module. So a pause is inserted wherever the gap would
// exceed longestGap; only little code that takes no time is exempt. A function with a large gap
// pauses at its entry.
//
// A pause ends a slice only if its fuel was charged. A charge before a call may also pay for code
// behind it, which is executed when a pause in the called function has counted the fuel already:
// many nested calls may return one after another to such code. So the code behind a call is charged
// there if the callers and the called functions together could have paid for much before.
type charges struct {
	edits   []edit
	current int   // the edit that pays for the current place, or none
	parent  int   // the charge that the current one may join
	gap     gap   // see above
	head    int64 // the largest gap so far since the function entry
	called  int32 // the end of the last call instruction
	owed    int64 // the largest late gap so far
	paused  bool  // the function may pause
	sized   bool  // some charges depend on a size
	blocks  int   // blocks that the edits add, see Config.MaxBlocks
}

// gap holds the largest weights that are executed on the ways to a place, apart for ways with a
// pause in the function and ways without. A negative number means that there is no such way.
type gap struct {
	since int64 // since the last pause
	whole int64 // from the entry, without a pause
	// late is the weight since the last call that may pause, if it may have been paid before the
	// call, with that of the called functions.
	late int64
}

// noWay is the gap of a place that is not reached. It remains negative when weights are added.
const noWay = -1 << 40

var noGap = gap{noWay, noWay, noWay}

func (g gap) most() int64 { return max(0, g.since, g.whole) }

func (g gap) join(h gap) gap {
	return gap{max(g.since, h.since), max(g.whole, h.whole), max(g.late, h.late)}
}

func (g gap) plus(weight int64) gap { return gap{g.since + weight, g.whole + weight, g.late + weight} }

// paused returns the gap behind a pause.
func paused(weight int64) gap { return gap{weight, noWay, noWay} }

// longestGap is the largest gap before a memory access, and before a call of a function that may
// not pause itself.
const longestGap = 2000

// shortGap is the gap before the first pause of a function with calls from which it pauses at its
// entry. A function that a chosen type may call pauses from this gap on, at its entry and at its end.
const shortGap = longestGap / 2

// longestLate is the largest late gap before a memory access.
const longestLate = 500

func (c *charges) reachable() bool { return c.current != none }

// add adds an edit if the place is reachable.
func (c *charges) add(e edit) {
	if c.reachable() {
		c.edits = append(c.edits, e)
	}
}

// pay adds a weight to the current charge.
func (c *charges) pay(weight int64) {
	if c.reachable() {
		c.edits[c.current].weight += weight
		c.grow(weight)
	}
}

// paySized adds a separate charge for an instruction with a size.
func (c *charges) paySized(at place, in instruction) {
	if !c.reachable() {
		return
	}
	c.gap, c.paused = paused(0), true // by the charge
	c.grow(int64(in.weight))
	c.sized = true
	c.blocks += sizedBlocks
	c.add(edit{place: at, kind: editSized, scale: in.scale, weight: int64(in.weight), bulk: in.bulk})
}

// begin opens a charge at a place. It may join parent if it is cheap.
func (c *charges) begin(at place, state chargeState, parent int) {
	c.edits = append(c.edits, edit{place: at, kind: editCharge, joined: none, state: state})
	c.current, c.parent = len(c.edits)-1, parent
	if state == forced {
		c.gap.late = noWay
	}
}

// settle decides about the open charge: it joins its parent if it adds little to it, else it stays.
func (c *charges) settle() {
	if !c.reachable() || c.edits[c.current].state != open {
		return
	}
	e, p := &c.edits[c.current], &c.edits[c.parent]
	if p.state == stays || p.state == forced {
		if sum := p.extra + e.weight; sum <= max(joint, p.weight-p.extra) {
			p.extra, p.weight = sum, p.weight+e.weight
			e.joined, e.weight = int32(c.parent), 0
			return
		}
	}
	e.state = stays
}

// resume continues at a place that a charge dominates. If every execution that pays the charge
// reaches the place, the charge also pays for the code there.
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

// branch continues after an instruction that may branch.
func (c *charges) branch(next place) {
	if c.reachable() {
		c.settle()
		c.resume(next, c.current, false)
	}
}

// leave continues after an instruction that never falls through.
func (c *charges) leave() {
	c.settle()
	c.current = none
}

// postpone removes a small charge that no other joined, and returns its weight. All charges that
// follow it pay the weight.
func (c *charges) postpone(charge int) (weight int64, ok bool) {
	e := &c.edits[charge]
	if e.state != forced || e.extra > 0 || e.weight > cheap/2 {
		return 0, false
	}
	weight = e.weight
	e.state, e.weight = deferred, 0
	return weight, true
}

// keepGap inserts a pause before an instruction if the gap is too large for it.
func (c *charges) keepGap(at place, heavy bool) {
	switch most := c.gap.most(); {
	case !c.reachable():
	case most >= longestGap && (heavy || most >= longestGap+cheap):
		c.pause(at)
	case c.gap.late >= longestLate && (heavy || c.gap.late >= longestLate+cheap):
		c.settle()
		c.begin(at, forced, none)
	}
}

func (c *charges) pause(at place) {
	// A charge that has just begun can carry the pause.
	if e := &c.edits[c.current]; c.current != len(c.edits)-1 || e.state == deferred || e.weight > cheap || e.at < c.called {
		c.settle()
		c.begin(at, forced, none)
	}
	e := &c.edits[c.current]
	e.state, e.pauses = forced, true
	c.gap, c.paused = paused(e.weight), true
	c.blocks++
}

func (c *charges) grow(weight int64) {
	c.gap = c.gap.plus(weight)
	c.head, c.owed = max(c.head, c.gap.whole), max(c.owed, c.gap.late)
}

// call records a call.
func (c *charges) call(next place, to *fact) {
	c.head = max(c.head, c.gap.whole+to.head)
	passed := noGap
	if to.passes {
		passed = c.gap.plus(to.whole)
	}
	c.gap = passed.join(paused(to.tail))
	if to.pauses {
		c.gap.late, c.paused = max(c.gap.late, to.owed), true
		c.owed = max(c.owed, c.gap.late)
	}
	c.called = next.at
}

// join records other ways to the place, and their gaps.
func (c *charges) join(other gap) {
	if !c.reachable() {
		c.gap = noGap
	}
	c.gap = c.gap.join(other)
}

// cache keeps the fuel in a local within a loop.
func (c *charges) cache(l span) {
	c.edits[l.from].cached = true
	for i := l.from + 1; i < l.to; i++ {
		e := &c.edits[i]
		e.cached = e.kind == editCharge || e.kind == editSized || e.kind == editPause || e.kind == editStore && int(e.depth) < l.depth
	}
}
