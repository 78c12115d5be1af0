package meter

import "math"

// cheap is the weight of what may be charged although a branch may leave it out: it saves charges of their own, at most as much as
// the charge it joins, or this.
const cheap = 16

// none is the charge of code that cannot be reached.
const none = -1

// edit is something to insert before a place in a function's body, in order of the places.
type edit struct {
	at     int // in the body
	skip   int // bytes that are left out
	depth  int // blocks that are open, the function's own included
	kind   editKind
	weight int64 // editCharge: 0: nothing, it joined another
	scale  scale // editSized
	extra  int64 // editCharge: what joined it
	joined int   // editCharge: the charge that it joined, or none. editOpcode: the opcode
	state  chargeState
}

type editKind uint8

const (
	editCharge editKind = iota // takes weight from the fuel, and traps if there is none
	editSized                  // the same, by the size on top of the stack
	editCall                   // says how much stack is in use
	editOpcode                 // writes an opcode after a prefix in its shortest form
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
	charge   int   // what is charged where it begins
	reach    int   // the outermost frame that a branch within goes to
	owes     int64 // its end has a charge of its own, with this on top: see deferHead
	start    int   // the values that a branch to it passes
}

// function reads the body of one function and decides what is inserted.
type function struct {
	reader
	p       *parser
	number  int // index of the function in the module
	locals  int
	frames  []frame
	edits   []edit
	charge  int  // the edit that pays for what is read now, or none
	parent  int  // the charge that it may join
	values  int  // see Config.MaxValues
	calls   bool // others
	sized   bool // has instructions that are charged by size
	work    int  // instructions that make a value
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
	f.edits = append(f.edits, edit{at: at, depth: max(len(f.frames), 1), kind: editCharge, joined: none, state: state})
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
			c.joined, c.weight = f.parent, 0
			return
		}
	}
	c.state = stays
}

// real returns the charge that a charge joined.
func (f *function) real(charge int) int {
	for f.edits[charge].joined != none {
		charge = f.edits[charge].joined
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
func (f *function) push(op byte, t signature) {
	fr := frame{op: op, dead: f.charge == none, charge: f.charge, reach: len(f.frames), start: t.results}
	fr.noElse = op == opIf
	if op == opLoop {
		fr.start = t.params
		f.values += f.locals
	}
	f.values += t.params + t.results
	f.frames = append(f.frames, fr)
	if fr.dead {
		return
	}
	switch op {
	case opLoop:
		f.settle()
		f.begin(f.i, forced, none)
		f.pay(1) // an empty loop is not free
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
func (f *function) deferHead(targets []int) {
	if f.charge == none {
		return
	}
	head, top := &f.edits[f.charge], len(f.frames)-1
	if head.state != forced || head.extra > 0 || head.weight > cheap/2 || f.charge != len(f.edits)-1 {
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
	for _, depth := range targets {
		f.frames[top-depth].owes = max(head.weight, 1)
	}
	head.state, head.weight = deferred, 0
}

// read reads the whole body.
func (f *function) read(t signature) {
	f.frames, f.edits = f.frames[:0], f.edits[:0]
	f.values, f.calls, f.sized, f.work = f.locals, false, false, 0
	f.begin(f.i, forced, none)
	f.pay(entryCharge)
	f.push(opBlock, signature{results: t.results})
	for f.ok() && len(f.frames) > 0 {
		f.instruction()
		if f.values++; f.values > int(min(f.p.cfg.MaxValues, math.MaxInt32)) {
			f.failAt(f.i, "function %d has more than %d values: too large to compile", f.number, f.p.cfg.MaxValues)
		}
	}
	f.end("a function")
}
