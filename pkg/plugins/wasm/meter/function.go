package meter

import "math"

// cheap is the weight of what may be charged although a branch may leave it out: it saves charges of their own, at most as much as
// the charge it joins, or this.
const cheap = 16

// none is the charge of code that cannot be reached.
const none = -1

// edit is something to insert before a place in a function's body, in order of the places.
type edit struct {
	weight int64 // editCharge: 0: nothing, it joined another
	extra  int64 // editCharge: what joined it
	at     int32 // in the body
	joined int32 // editCharge: the charge that it joined, or none.
	depth  int32 // blocks that are open, the function's own included. editStore: the outermost that is gone to
	scale  scale // editSized
	kind   editKind
	state  chargeState
	cached bool // the fuel is in a local, see cacheLoops
	pauses bool // editCharge: the guest may pause here, see pause.go
	again  bool // then the loop begins anew
}

type editKind uint8

const (
	editCharge editKind = iota // takes weight from the fuel, and traps if there is none
	editSized                  // the same, by the size on top of the stack
	editCall                   // says how much stack is in use
	editLoad                   // takes the fuel into a local, if cached
	editStore                  // puts it back, if cached
	editPause                  // lets the guest pause, see pause.go
)

// chargeState: a charge is open while the code after it is read. Then it stays or joins the one before. One that is forced stays.
type chargeState uint8

const (
	open chargeState = iota
	stays
	forced
	deferred // paid by all that follow it
)

// frame is a block, loop, if, or the function itself.
type frame struct {
	op       byte
	dead     bool  // it begins where nothing comes
	branched bool  // something branches to its end
	noElse   bool  // an if without else, so far
	calls    bool  // there is a call within
	charge   int   // what is charged where it begins
	reach    int   // the outermost frame that a branch within goes to
	owes     int64 // its end has a charge of its own, with this on top: see deferHead
	start    int   // the values that a branch to it passes
	index    int   // of a loop, in loops
	at       int   // where it begins
	table    *dispatch
}

// span is a loop: its edits, and what is known of it.
type span struct {
	from, to int // edits
	depth    int // of its frame
	calls    bool
}

// function reads the body of one function and decides what is inserted.
type function struct {
	reader
	p       *parser
	number  int // index of the function in the module
	locals  int
	frames  []frame
	edits   []edit
	loops   []span
	charge  int    // the edit that pays for what is read now, or none
	parent  int    // the charge that it may join
	values  int    // see Config.MaxValues
	calls   bool   // others
	sized   bool   // has instructions that are charged by size
	cached  bool   // has loops with the fuel in a local
	blocks  int    // see Config.MaxBlocks
	seen    int    // instructions
	before  [2]int // where the last two instructions begin
	targets []int
}

func (f *function) failAt(at int, format string, args ...any) { f.fail(f.start+at, format, args...) }

// pay adds a weight to the charge of what is read now.
func (f *function) pay(weight int64) {
	if f.charge != none {
		f.edits[f.charge].weight += weight
	}
}

// begin opens a charge at a place. What follows joins parent if it is cheap.
func (f *function) begin(at int, state chargeState, parent int) {
	f.edits = append(f.edits, edit{at: int32(at), depth: int32(max(len(f.frames), 1)), kind: editCharge, joined: none, state: state})
	f.charge, f.parent = len(f.edits)-1, parent
}

// settle decides about the charge that is open: it stays, or joins its parent if that is not much more for it.
func (f *function) settle() {
	if f.charge == none || f.edits[f.charge].state != open {
		return
	}
	c, p := &f.edits[f.charge], &f.edits[f.parent]
	if p.state == stays || p.state == forced {
		if sum := p.extra + c.weight; sum <= max(cheap, p.weight-p.extra) {
			p.extra, p.weight = sum, p.weight+c.weight
			c.joined, c.weight = int32(f.parent), 0
			return
		}
	}
	c.state = stays
}

// real returns the charge that a charge joined.
func (f *function) real(charge int) int {
	for f.edits[charge].joined != none {
		charge = int(f.edits[charge].joined)
	}
	return charge
}

// resume goes on at a place that a charge dominates. If it is certain that the place is reached once it is paid, it pays for what
// follows too.
func (f *function) resume(at, charge int, certain bool) {
	own := f.edits[charge].joined == none
	charge = f.real(charge)
	switch {
	case f.edits[charge].state == deferred:
		f.begin(at, forced, charge)
	case certain && own:
		f.charge, f.parent = charge, none
	default:
		f.begin(at, open, charge)
	}
}

// branch goes on after something that may branch.
func (f *function) branch() {
	if f.charge == none {
		return
	}
	f.settle()
	f.resume(f.i, f.charge, false)
}

// leave goes on after something that does not come back.
func (f *function) leave() {
	f.settle()
	f.charge = none
}

// push begins a block.
func (f *function) push(at int, op byte, t signature) {
	fr := frame{op: op, at: at, dead: f.charge == none, charge: f.charge, reach: len(f.frames), start: t.results}
	fr.noElse = op == opIf
	if op == opLoop {
		fr.start = t.params
		f.values += f.locals
		if !fr.dead {
			fr.index = len(f.loops)
			f.loops = append(f.loops, span{from: len(f.edits), depth: len(f.frames)})
			f.edits = append(f.edits, edit{at: int32(at), kind: editLoad})
		}
	}
	f.values += t.params + t.results
	f.blocks++
	f.frames = append(f.frames, fr)
	if fr.dead {
		return
	}
	switch op {
	case opLoop:
		f.settle()
		f.begin(f.i, forced, none)
		f.pay(turnCost)
		f.edits[f.charge].pauses, f.edits[f.charge].again = true, t.params == 0
	case opIf:
		f.branch()
	}
}

// label notes a branch to the frame at a depth.
func (f *function) label(depth int) {
	target := len(f.frames) - 1 - depth
	top := &f.frames[len(f.frames)-1]
	top.reach = min(top.reach, target)
	f.values += f.frames[target].start
	f.blocks++
	if f.charge != none && f.frames[target].op != opLoop {
		f.frames[target].branched = true
	}
}

func (f *function) elseBranch() {
	fr := &f.frames[len(f.frames)-1]
	if !fr.noElse {
		f.failAt(f.i-1, "else without if")
		return
	}
	fr.noElse = false
	if fr.dead {
		return
	}
	if f.charge != none {
		fr.branched = true // the end of the if is a place where two ways meet
	}
	f.settle()
	f.resume(f.i, fr.charge, false)
}

// pop ends a block.
func (f *function) pop() {
	n := len(f.frames) - 1
	fr := f.frames[n]
	f.frames = f.frames[:n]
	if n == 0 {
		f.settle()
		return
	}
	up := &f.frames[n-1]
	up.reach = min(up.reach, fr.reach)
	up.calls = up.calls || fr.calls
	if fr.op == opLoop && !fr.dead {
		f.store(f.i, n-1)
		f.loops[fr.index].to, f.loops[fr.index].calls = len(f.edits), fr.calls
	}
	certain := fr.reach >= n
	switch {
	case fr.dead:
	case fr.owes > 0:
		f.settle()
		f.begin(f.i, forced, none)
		f.pay(fr.owes)
	case fr.op == opLoop && f.charge == none: // never left at its end
	case fr.op == opBlock && !fr.branched: // what follows is reached from here alone
	case fr.branched || fr.noElse || f.charge != none:
		f.settle()
		f.values += f.locals / 8
		f.resume(f.i, fr.charge, certain)
	}
}

// deferHead leaves out the charge of a loop head if nothing but a table of branches follows, as in Go's output where each basic
// block is a branch to it: the ends of the blocks where it leads to are charged instead.
func (f *function) deferHead(targets []int, stores int) {
	if f.charge == none {
		return
	}
	head, top := &f.edits[f.charge], len(f.frames)-1
	if head.state != forced || head.extra > 0 || head.weight > cheap/2 || f.charge != len(f.edits)-1-stores {
		return
	}
	within := 0 // blocks of the loop that are open
	for ; f.frames[top-within].op != opLoop; within++ {
		if f.frames[top-within].op != opBlock || within == top {
			return
		}
	}
	for _, depth := range targets {
		if depth >= within {
			return
		}
	}
	owes := max(head.weight, 1)
	head.state, head.weight = deferred, 0
	// What leads straight to such a loop need not be charged either.
	outer := &f.edits[f.frames[top-within].charge]
	if f.frames[top-within].charge == f.charge-2 && outer.state == forced && outer.extra == 0 && outer.weight <= cheap/2 {
		owes += outer.weight
		outer.state, outer.weight = deferred, 0
	}
	for _, depth := range targets {
		f.frames[top-depth].owes = owes
	}
	f.dispatch(top-within, targets)
}

// store notes a place where loops may be left for the frame at a depth.
func (f *function) store(at, depth int) {
	if f.charge != none && len(f.loops) > 0 {
		f.edits = append(f.edits, edit{at: int32(at), kind: editStore, depth: int32(depth)})
	}
}

// cacheLoops keeps the fuel in a local within the outermost loops without a call: a charge then takes a tenth of the time.
func (f *function) cacheLoops() {
	f.cached = false
	done := 0
	for _, l := range f.loops {
		if l.from < done || l.calls {
			continue
		}
		f.cached, done = true, l.to
		f.edits[l.from].cached = true
		for i := l.from + 1; i < l.to; i++ {
			e := &f.edits[i]
			e.cached = e.kind == editCharge || e.kind == editSized || e.kind == editPause || e.kind == editStore && int(e.depth) < l.depth
		}
	}
}

// read reads the whole body.
func (f *function) read(t signature) {
	f.frames, f.edits, f.loops = f.frames[:0], f.edits[:0], f.loops[:0]
	f.values, f.calls, f.sized, f.blocks, f.seen, f.before = f.locals, false, false, 0, 0, [2]int{}
	f.begin(f.i, forced, none)
	f.push(f.i, opBlock, signature{results: t.results})
	for f.ok() && len(f.frames) > 0 {
		at := f.i
		f.instruction()
		f.before = [2]int{f.before[1], at}
		f.seen++
		if f.values++; f.values > int(min(f.p.cfg.MaxValues, math.MaxInt32)) {
			f.failAt(f.i, "function %d has more than %d values: too large to compile", f.number, f.p.cfg.MaxValues)
		}
	}
	f.end("a function")
	f.cacheLoops()
}
