package meter

import (
	"math"
	"slices"
)

// frame is a block, loop, if, or the function itself.
type frame struct {
	op       byte
	dead     bool  // its begin is unreachable
	branched bool  // a branch leads to its end
	noElse   bool  // an if without else, so far
	calls    bool  // it contains a call
	owed     int64 // the largest late gap of its calls, or noWay
	charge   int   // the charge at its begin
	reach    int   // the outermost frame that a branch in it leads to
	owes     int64 // its end has a charge of its own with this extra weight, see deferHead
	passes   int   // the number of values that a branch to it passes
	index    int   // of a loop, in loops
	at       int   // its begin
	table    *dispatch
	jumps    *dispatch // the dispatch loop whose table leads to its end
	gap      gap       // at its begin, see charges
	exit     gap       // of branches to its end
}

// span is a loop: its edits and properties.
type span struct {
	from, to int // edits
	depth    int // of its frame
	calls    bool
}

// function follows the instructions of one function through its blocks and decides about
// insertions.
type function struct {
	body    body
	charges charges
	frames  []frame
	loops   []span
	facts   *facts
	values  int    // see Config.MaxValues
	blocks  int    // see Config.MaxBlocks
	calls   bool   // it calls other functions, cold calls aside
	tracked bool   // it counts its stack
	byType  bool   // it calls by a chosen type
	chosen  bool   // it pauses at its entry and end, see graph
	entry   bool   // it may pause at its entry
	below   int64  // the most bytes of the frames of a called function that is not tracked
	cached  bool   // it has loops that keep the fuel in a local
	seen    int    // the number of instructions
	held    int    // bytes of the results of calls with several results
	passed  int    // the most bytes of parameters and results of a call
	before  [2]int // offsets of the last two instructions
	targets []int
}

// The values and blocks that the compiler holds for an instruction besides the instruction itself,
// see Config.MaxValues and Config.MaxBlocks.
const (
	accessValues = 7 // a memory access includes a bounds check
	callValues   = 7
	loopBlocks   = 4
	sizedBlocks  = 2 // the charge, and the chunks
	startBlocks  = 3 // the pause at the entry
	joinShare    = 4 // one of so many locals differs where two ways meet
)

// read reads the whole body of a function.
func (f *function) read(t *signature) {
	b := &f.body
	b.readLocals(t)
	f.values = b.locals
	f.charges.begin(place{at: int32(b.i)}, forced, none)
	f.push(b.i, opBlock, signature{results: t.results})
	for b.ok() && len(f.frames) > 0 {
		at := b.i
		f.instruction(at)
		f.before = [2]int{f.before[1], at}
		f.seen++
		if f.values++; f.values > int(min(b.m.cfg.MaxValues, math.MaxInt32)) {
			b.failAt(b.i, "function %d has more than %d values: too large to compile", b.number, b.m.cfg.MaxValues)
		}
	}
	b.end("a function")
	f.cacheLoops()
}

// next returns the place behind the current instruction.
func (f *function) next() place { return place{at: int32(f.body.i)} }

// instruction reads one instruction.
func (f *function) instruction(at int) {
	op := f.body.byte()
	in := instructions[op]
	if in.imm == immUnknown {
		in = f.body.longer(at, op)
	}
	access := in.imm == immMemarg || in.imm == immMemLane
	if access {
		f.values += accessValues
	}
	switch {
	case in.imm == immUnknown:
		return
	case in.imm == immControl:
		f.charges.pay(int64(in.weight))
		f.control(at, op)
		return
	case in.scale.sized():
		f.charges.paySized(place{at: int32(at)}, in)
	default:
		f.charges.keepGap(place{at: int32(at)}, access || in.weight > cheap/2)
		f.charges.pay(int64(in.weight))
	}
	if in.imm == immFunc {
		f.charges.add(edit{place: place{at: int32(at)}, kind: editRef, weight: int64(f.body.reference(at)), extra: int64(f.body.i - at)})
		return
	}
	f.body.immediate(in.imm)
}

// control reads an instruction that changes the flow of control.
func (f *function) control(at int, op byte) {
	switch op {
	case opBlock, opLoop, opIf:
		f.push(at, op, f.body.blockType())
	case opElse:
		f.elseBranch()
	case opEnd:
		f.pop()
	case opUnreachable:
		f.charges.leave()
	case opBr:
		f.jump(at, op)
		f.charges.leave()
	case opBrIf:
		f.jump(at, op)
		f.charges.branch(f.next())
	case opBrTable:
		f.table(at)
		f.charges.leave()
	case opReturn:
		f.store(at, 0)
		f.charges.add(edit{place: place{int32(at), int32(len(f.frames) - 1)}, kind: editReturn})
		f.label(len(f.frames) - 1)
		f.charges.leave()
	case opCall:
		f.direct(at)
	case opCallIndirect:
		f.indirect(at)
	}
}

// jump reads the label of a branch.
func (f *function) jump(at int, op byte) {
	depth := f.body.index(len(f.frames), "label")
	if !f.body.ok() {
		return
	}
	to := here
	if op == opBr {
		to = depth
	}
	f.pauseAt(at, depth, to)
	f.store(at, len(f.frames)-1-depth)
	f.label(depth)
}

// table reads a table of branches.
func (f *function) table(at int) {
	n := f.body.count(f.body.m.cfg.MaxValues, "labels")
	f.targets = f.targets[:0]
	for range n + 1 {
		depth := f.body.index(len(f.frames), "label")
		if !f.body.ok() {
			return
		}
		f.pauseAt(at, depth, here)
		f.label(depth)
		f.targets = append(f.targets, depth)
	}
	f.blocks -= n - n/4 // a target of a table costs a fourth of a branch
	before := len(f.charges.edits)
	f.store(at, len(f.frames)-1-slices.Max(f.targets))
	f.deferHead(f.targets, len(f.charges.edits)-before)
}

// push begins a block.
func (f *function) push(at int, op byte, t signature) {
	c := &f.charges
	fr := frame{gap: c.gap, exit: noGap, owed: noWay, op: op, at: at, dead: !c.reachable(), charge: c.current, reach: len(f.frames), passes: len(t.results), noElse: op == opIf}
	if op == opLoop {
		fr.passes = len(t.params)
		f.values += f.body.locals
		f.blocks += loopBlocks
		if !fr.dead {
			fr.index = len(f.loops)
			f.loops = append(f.loops, span{from: len(c.edits), depth: len(f.frames)})
			c.add(edit{place: place{at: int32(at)}, kind: editLoad})
		}
	}
	f.values += len(t.params) + len(t.results)
	f.blocks++
	f.frames = append(f.frames, fr)
	switch {
	case fr.dead:
	case op == opLoop:
		c.settle()
		c.begin(f.next(), forced, none)
		c.gap, c.paused = paused(0), true
		c.pay(turnCost)
		c.edits[c.current].pauses, c.edits[c.current].again = true, len(t.params) == 0
	case op == opIf:
		c.branch(f.next())
	}
}

// label records a branch to the frame at a depth.
func (f *function) label(depth int) {
	n := len(f.frames) - 1
	target, top := &f.frames[n-depth], &f.frames[n]
	top.reach = min(top.reach, n-depth)
	f.values += target.passes
	f.blocks++
	if f.charges.reachable() && target.op != opLoop {
		target.branched = true
		target.exit = target.exit.join(f.charges.gap)
	}
}

func (f *function) elseBranch() {
	c, fr := &f.charges, &f.frames[len(f.frames)-1]
	if !fr.noElse {
		f.body.failAt(f.body.i-1, "else without if")
		return
	}
	fr.noElse = false
	if fr.dead {
		return
	}
	if c.reachable() {
		fr.branched = true // two ways meet at the end of the if
		fr.exit = fr.exit.join(c.gap)
	}
	c.gap = fr.gap
	c.settle()
	c.resume(f.next(), fr.charge, false)
}

// pop ends a block.
func (f *function) pop() {
	c, n := &f.charges, len(f.frames)-1
	fr := f.frames[n]
	f.frames = f.frames[:n]
	if n == 0 {
		c.join(fr.exit)
		c.settle()
		return
	}
	up := &f.frames[n-1]
	up.reach = min(up.reach, fr.reach)
	up.calls, up.owed = up.calls || fr.calls, max(up.owed, fr.owed)
	if fr.op == opLoop && !fr.dead {
		f.store(f.body.i, n-1)
		f.loops[fr.index].to, f.loops[fr.index].calls = len(c.edits), fr.calls
	}
	if fr.noElse {
		fr.exit = fr.exit.join(fr.gap)
	}
	c.join(fr.exit)
	c.gap.late = max(c.gap.late, fr.owed) // the charge at its begin may pay for the code behind it
	switch {
	case fr.dead:
	case fr.owes > 0:
		c.gap = c.gap.join(fr.jumps.gap())
		c.settle()
		c.begin(f.next(), forced, none)
		c.pay(fr.owes)
	case fr.op == opLoop && !c.reachable(): // its end is unreachable
	case fr.op == opBlock && !fr.branched: // the end has one predecessor
	case fr.branched || fr.noElse || c.reachable():
		c.settle()
		f.values += f.body.locals / joinShare
		c.resume(f.next(), fr.charge, fr.reach >= n)
	}
}

// deferHead removes the charge of a loop head that is followed by a table of branches only. Go's
// compiler writes such loops: each basic block is a target of the table. The ends of the target
// blocks are charged instead.
func (f *function) deferHead(targets []int, stores int) {
	c, top := &f.charges, len(f.frames)-1
	if !c.reachable() || c.current != len(c.edits)-1-stores {
		return
	}
	within := 0 // open blocks of the loop
	for ; f.frames[top-within].op != opLoop; within++ {
		if f.frames[top-within].op != opBlock || within == top {
			return
		}
	}
	if slices.Max(targets) >= within {
		return
	}
	owes, ok := c.postpone(c.current)
	if !ok {
		return
	}
	owes = max(owes, 1)
	// A charge that leads directly to such a loop can be removed too.
	if outer := f.frames[top-within].charge; outer == c.current-2 {
		more, _ := c.postpone(outer)
		owes += more
	}
	for _, depth := range targets {
		f.frames[top-depth].owes = owes
	}
	f.dispatch(top-within, targets)
}

// store records a place where a branch may leave loops for the frame at a depth.
func (f *function) store(at, depth int) {
	if len(f.loops) > 0 {
		f.charges.add(edit{place: place{int32(at), int32(depth)}, kind: editStore})
	}
}

// cacheLoops keeps the fuel in a local in the outermost loops without calls: a charge then takes a
// tenth of the time.
func (f *function) cacheLoops() {
	done := 0
	for _, l := range f.loops {
		if l.from >= done && !l.calls {
			f.cached, done = true, l.to
			f.charges.cache(l)
		}
	}
}
