package meter

import (
	"bytes"
	"encoding/binary"
	"slices"
)

// The pause is a function behind those of the module, so that no index changes and no code of the
// module can refer to it. Loop heads and the chosen functions of the cycles of calls call it when
// Fuel is negative: every long execution passes one of these. It traps if Fuel and Rest together
// are negative, and no other code tests the remaining fuel. Else it calls the host's function,
// which returns the next slice, and divides the remaining fuel: the slice is Fuel, and what is
// behind it is Rest. The engine leaves compiled code for that call, so the host's runtime can stop
// the guest and the host can read its clock.
//
// An import of the host's function would precede the functions of the module and change each index.
// So the function is an entry of a table behind those of the module. The host sets the entry after
// it has made an instance.
//
// Other charges do not call the pause: the compiler generates slower code around a call, even if it
// is executed rarely.

// The host's function receives the remaining fuel and returns the next slice, which is not negative
// and not more. To get a reference to its function, the host instantiates the module PauseHelper,
// which imports the function by these names, and calls its export.
const (
	PauseModule   = "rtr_meter"
	PauseFunction = "pause"
	PauseRef      = "ref"
)

// PauseHelper returns a module that imports a function and exports a function that returns a
// reference to it.
func PauseHelper() []byte {
	b := append([]byte(nil), "\x00asm\x01\x00\x00\x00"...)
	b = appendSection(b, secType, []byte{2, 0x60, 1, typeI64, 1, typeI64, 0x60, 0, 1, typeFuncref})
	b = appendSection(b, secImport, append(appendSized(appendSized([]byte{1}, PauseModule), PauseFunction), 0, 0))
	b = appendSection(b, secFunction, []byte{1, 1})
	b = appendSection(b, secExport, append(appendSized([]byte{1}, PauseRef), 0, 1))
	b = appendSection(b, secElement, []byte{1, 3, 0, 1, 0}) // declares it
	return appendSection(b, secCode, []byte{1, 4, 0, opRefFunc, 0, opEnd})
}

// chargeAt writes a charge.
func (w *writer) chargeAt(e *edit) {
	to := int64(here)
	if e.again {
		// the loop starts again: the compiler treats the code behind as if there were no call
		to = 0
	}
	switch {
	case e.pauses && e.weight > 0:
		w.less(e.weight)
		w.keep()
		w.pause(w.kept, e.weight, to)
	case e.pauses:
		w.pause(w.get, 0, to)
	case e.weight > 0:
		w.less(e.weight)
		w.put()
	}
}

// here is the target of a pause that does not continue at a label.
const here = -1

// pause writes the following, where fuel gets the fuel: if fuel < 0 { call pause; if to is a label: fuel += weight; goto to }
func (w *writer) pause(fuel func(), weight, to int64) {
	if to == here {
		w.negative(fuel)
		w.op(opIf, emptyBlock)
		w.callPause()
		w.op(opEnd)
		return
	}
	w.aside(func() { w.negative(fuel) })
	w.callPause()
	w.refund(weight)
	w.local(opBr, uint64(to+1))
	w.op(opEnd)
}

// negative tests the sign of the fuel.
func (w *writer) negative(fuel func()) {
	fuel()
	w.constant(opI64Const, 0)
	w.op(opI64LtS)
}

func (w *writer) callPause() {
	if w.cached {
		w.move(editStore)
	}
	w.local(opCall, w.added.pause)
	if w.cached {
		w.move(editLoad)
	}
}

// refund adds to the fuel the weight of a charge that is executed again.
func (w *writer) refund(weight int64) {
	if weight > 0 {
		w.less(-weight)
		w.put()
	}
}

// dispatch is a loop that begins with a table of branches and nothing else, the form of all
// functions of Go's compiler: a jump sets a local and starts the loop again.
type dispatch struct {
	local   uint64
	targets []int // offsets of the table's target blocks
	most    gap   // of forward jumps and of the way to the loop
}

// gap returns the gap behind the table.
func (d *dispatch) gap() gap {
	if d == nil {
		return noGap
	}
	return d.most
}

// dispatch finds out whether the loop at an index, whose head contains a table of branches, is a
// dispatch loop. If so, the jumps back pause instead of the head: most jumps go forward and need no
// pause.
func (f *function) dispatch(index int, targets []int) {
	fr := &f.frames[index]
	head := f.body.b[fr.at:f.before[1]]
	if !bytes.HasPrefix(head, []byte{opLoop, emptyBlock}) {
		return
	}
	for head = head[2:]; bytes.HasPrefix(head, []byte{opBlock, emptyBlock}); {
		head = head[2:]
	}
	get := f.body.b[f.before[1]:]
	if len(head) != 0 || get[0] != opLocalGet {
		return
	}
	d := &dispatch{most: fr.gap.plus(cheap)}
	d.local, _ = binary.Uvarint(get[1:])
	for _, depth := range targets {
		target := &f.frames[len(f.frames)-1-depth]
		d.targets = append(d.targets, target.at)
		target.jumps = d
	}
	fr.table = d
	f.charges.edits[f.charges.current].pauses = false
}

// pauseAt records a branch to the frame at a depth where the guest may have to pause. The pause
// continues at a label, or here.
func (f *function) pauseAt(at, depth, to int) {
	d := f.frames[len(f.frames)-1-depth].table
	if d == nil || !f.charges.reachable() {
		return
	}
	if f.forward(d) {
		d.most = d.most.join(f.charges.gap.plus(cheap))
		return
	}
	if last := f.charges.edits[len(f.charges.edits)-1]; last.kind != editPause || int(last.at) != at {
		f.charges.add(edit{place: place{int32(at), int32(to)}, kind: editPause})
	}
}

// forward reports whether a jump of the dispatch loop goes forward: the last two instructions set
// the local, and the end of the target block was not read yet.
func (f *function) forward(d *dispatch) bool {
	set, value := f.body.b[f.before[1]:], f.body.b[f.before[0]:]
	if set[0] != opLocalSet || value[0] != opI32Const {
		return false
	}
	local, _ := binary.Uvarint(set[1:])
	k := reader{b: value[1:]}
	n := k.signed(32)
	if local != d.local || n < 0 {
		return false
	}
	at := d.targets[min(int(n), len(d.targets)-1)]
	return slices.ContainsFunc(f.frames, func(fr frame) bool { return fr.at == at })
}

// The added functions, counted from the pause.
const (
	armFunction   = 1 // receives the host's function
	coldFunction  = 2 // checks the guest before a cold call
	bulkFunctions = 3 // the first one copies, the second one fills
)

// appendFunctions appends the code of the added functions.
func (a *additions) appendFunctions(b []byte) []byte {
	for _, write := range []func(*writer){
		(*writer).pauseFunction, (*writer).armFunction, (*writer).coldFunction,
		func(w *writer) { w.bulkFunction(bulkCopy) }, func(w *writer) { w.bulkFunction(bulkFill) },
	}[:a.functions()] {
		w := writer{added: a}
		write(&w)
		w.op(opEnd)
		b = appendSized(b, w.b)
	}
	return b
}

// pauseFunction writes the pause: total = fuel + rest; if total < 0 { unreachable }; fuel =
// host(total); rest = total - fuel
func (w *writer) pauseFunction() {
	w.op(1, 1, typeI64)
	w.global(opGlobalGet, w.added.fuel)
	w.global(opGlobalGet, w.added.rest)
	w.op(opI64Add)
	w.local(opLocalTee, 0)
	w.constant(opI64Const, 0)
	w.op(opI64LtS, opIf, emptyBlock, opUnreachable, opEnd)
	w.local(opLocalGet, 0)
	w.local(opLocalGet, 0)
	w.constant(opI32Const, 0)
	w.op(opCallIndirect)
	w.b = appendUint(appendUint(w.b, uint64(len(w.added.m.types)+typeHost)), w.added.table)
	w.local(opLocalTee, 0)
	w.global(opGlobalSet, w.added.fuel)
	w.local(opLocalGet, 0)
	w.op(opI64Sub)
	w.global(opGlobalSet, w.added.rest)
}

// armFunction writes the function that receives the host's function.
func (w *writer) armFunction() {
	w.op(0) // no locals
	w.constant(opI32Const, 0)
	w.local(opLocalGet, 0)
	w.local(opTableSet, w.added.table)
}

// coldFunction writes the function that is called before a cold call: it pauses if it is time, and
// adds its parameter to the stack in use, see function.coldStack.
func (w *writer) coldFunction() {
	w.op(0) // no locals
	w.global(opGlobalGet, w.added.fuel)
	w.constant(opI64Const, 0)
	w.op(opI64LtS, opIf, emptyBlock, opCall)
	w.b = appendUint(w.b, w.added.pause)
	w.op(opEnd)
	w.global(opGlobalGet, w.added.stack)
	w.local(opLocalGet, 0)
	w.op(opI32Add)
	w.global(opGlobalSet, w.added.stack)
	w.global(opGlobalGet, w.added.stack)
	w.constant(opI32Const, int64(w.added.m.cfg.Stack))
	w.op(opI32GtS, opIf, emptyBlock, opUnreachable, opEnd)
}

// One instruction can fill or copy all of the memory, 64 MiB in 20 ms, without a pause. So a call
// of an added function precedes each fill or copy of more than Config.Chunk bytes. The function
// takes the operands of the instruction, does all but the last chunk, pauses after each chunk, and
// returns the operands of the rest. If the operands are out of bounds it does nothing: the
// instruction itself then traps before it writes.

// The opcodes of the bulk instructions behind their prefix.
const (
	bulkNone = 0
	bulkCopy = 10
	bulkFill = 11
)

// chunks writes the call of the added function. The size is in a local.
func (w *writer) chunks(bulk byte) {
	if bulk == bulkNone || !w.added.bulk {
		return
	}
	w.local(opLocalGet, w.size)
	w.constant(opI32Const, int64(w.added.m.cfg.Chunk))
	w.op(opI32GtU, opIf)
	w.b = appendInt(w.b, int64(len(w.added.m.types)+typeBulk))
	if w.cached {
		w.move(editStore) // the function pauses
	}
	w.local(opCall, w.added.pause+bulkFunctions+uint64(bulk-bulkCopy))
	if w.cached {
		w.move(editLoad)
	}
	w.op(opEnd)
}

// The parameters of both functions.
const (
	bulkTo   = 0
	bulkFrom = 1 // or the byte to fill with
	bulkSize = 2
)

// bulkFunction writes the code of an added function that fills or copies.
func (w *writer) bulkFunction(bulk byte) {
	chunk := int64(w.added.m.cfg.Chunk)
	w.op(0) // no locals
	w.within(bulkTo)
	if bulk == bulkCopy {
		w.within(bulkFrom)
		// If the destination overlaps the source from above, the copy starts at the end.
		w.local(opLocalGet, bulkTo)
		w.local(opLocalGet, bulkFrom)
		w.op(opI32GtU, opIf, emptyBlock)
		w.backward(chunk)
		w.op(opEnd)
	}
	w.forward(bulk, chunk)
}

// within returns the operands unchanged if they are out of bounds.
func (w *writer) within(at uint64) {
	for _, local := range []uint64{at, bulkSize} {
		w.local(opLocalGet, local)
		w.op(opI64ExtendU)
	}
	w.op(opI64Add, opMemorySize, 0, opI64ExtendU)
	w.constant(opI64Const, 16)
	w.op(opI64Shl, opI64GtU, opIf, emptyBlock)
	w.rest()
	w.op(opEnd)
}

// rest returns the operands of the rest.
func (w *writer) rest() {
	w.local(opLocalGet, bulkTo)
	w.local(opLocalGet, bulkFrom)
	w.local(opLocalGet, bulkSize)
	w.op(opReturn)
}

// again pauses, and repeats the loop if more than a chunk is left.
func (w *writer) again(chunk int64) {
	w.local(opCall, w.added.pause)
	w.local(opLocalGet, bulkSize)
	w.constant(opI32Const, chunk)
	w.op(opI32GtU, opBrIf, 0, opEnd)
	w.rest()
}

func (w *writer) forward(bulk byte, chunk int64) {
	w.op(opLoop, emptyBlock)
	w.local(opLocalGet, bulkTo)
	w.local(opLocalGet, bulkFrom)
	w.constant(opI32Const, chunk)
	w.op(opMisc, bulk, 0)
	if bulk == bulkCopy {
		w.op(0) // index of the source memory
		w.step(bulkFrom, chunk)
	}
	w.step(bulkTo, chunk)
	w.step(bulkSize, -chunk)
	w.again(chunk)
}

func (w *writer) backward(chunk int64) {
	w.op(opLoop, emptyBlock)
	w.step(bulkSize, -chunk)
	for _, local := range []uint64{bulkTo, bulkFrom} {
		w.local(opLocalGet, local)
		w.local(opLocalGet, bulkSize)
		w.op(opI32Add)
	}
	w.constant(opI32Const, chunk)
	w.op(opMisc, bulkCopy, 0, 0)
	w.again(chunk)
}
