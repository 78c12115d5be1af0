package meter

import (
	"bytes"
	"encoding/binary"
	"slices"
)

// The pause is a function behind those of the module, so that no index changes, and none of the
// module's can name it. It is called at loop heads and at the entries of functions that call
// others, once the fuel is below Mark: whatever goes on for long comes by one of these. If there is
// no fuel it traps. Else it calls the host's function, which says where Mark stands then: the
// engine leaves compiled code for that, and comes to where the host's runtime can stop it, and the
// host can look at its clock.
//
// An import of the host's function would come before those of the module and change each index. So
// the function is in a table behind those of the module, where the host puts it when it has made an
// instance.
//
// It is not called where other charges are: code around a call, however seldom it is made, is
// compiled to be slower.

// The host's function takes the fuel that is left, and returns the mark, which is not negative. For
// a reference to it the host makes an instance of the module PauseHelper, which imports it by these
// names, and calls its export.
const (
	PauseModule   = "rtr_meter"
	PauseFunction = "pause"
	PauseRef      = "ref"
)

// PauseHelper returns a module that imports a function, and exports one that returns a reference to
// it.
func PauseHelper() []byte {
	b := append([]byte(nil), "\x00asm\x01\x00\x00\x00"...)
	b = appendSection(b, secType, []byte{2, 0x60, 1, typeI64, 1, typeI64, 0x60, 0, 1, typeFuncref})
	b = appendSection(b, secImport, append(appendSized(appendSized([]byte{1}, PauseModule), PauseFunction), 0, 0))
	b = appendSection(b, secFunction, []byte{1, 1})
	b = appendSection(b, secExport, append(appendSized([]byte{1}, PauseRef), 0, 1))
	b = appendSection(b, secElement, []byte{1, 3, 0, 1, 0}) // declares it
	return appendSection(b, secCode, []byte{1, 4, 0, opRefFunc, 0, opEnd})
}

// chargeAt writes a charge; entry: it is that of a function that calls others.
func (w *writer) chargeAt(e *edit, entry bool) {
	to := int64(here)
	if e.again {
		to = 0 // the loop begins anew: what comes is compiled as if there were no call
	}
	switch pauses := w.added.pauses && (entry || e.pauses); {
	case pauses && e.weight > 0:
		w.less(e.weight)
		w.put()
		w.pause(e.weight, to) // it traps, too
	case pauses:
		w.get()
		w.pause(0, to)
	case e.weight > 0:
		w.charge(e.weight)
	}
}

// here is where a pause goes on if that is not at a label.
const here = -1

// pause takes the fuel that is on the stack: if fuel < mark { call pause; if to is a label: fuel +=
// weight; goto to }
func (w *writer) pause(weight, to int64) {
	if w.cached {
		w.local(opLocalGet, w.below)
	} else {
		w.global(opGlobalGet, w.added.mark)
	}
	w.op(opI64LtS, opIf, emptyBlock)
	if w.cached {
		w.move(editStore)
	}
	w.op(opCall)
	w.b = appendUint(w.b, w.added.pause)
	if w.cached {
		w.moveMark()
	}
	if to != here {
		if weight > 0 {
			w.less(-weight)
			w.put()
			w.op(opDrop)
		}
		w.op(opBr)
		w.b = appendUint(w.b, uint64(to+1))
	}
	w.op(opEnd)
}

// moveMark takes the mark into the local.
func (w *writer) moveMark() {
	w.global(opGlobalGet, w.added.mark)
	w.local(opLocalSet, w.below)
}

// dispatch is a loop that begins with a table of branches and nothing else: as all of Go's
// functions, where a jump sets a local and begins the loop anew.
type dispatch struct {
	local   uint64
	targets []int // where the blocks begin whose ends the table leads to
	most    int64 // the largest gap of jumps forward, and of the way to the loop
}

// gap returns the gap behind the table.
func (d *dispatch) gap() int64 {
	if d == nil {
		return 0
	}
	return d.most
}

// dispatch finds out whether the loop at an index, in whose head a table of branches stands, is
// one. Then what goes back to its head pauses, not the head: most jumps go forward, and need not.
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
	d := &dispatch{most: fr.gap + cheap}
	d.local, _ = binary.Uvarint(get[1:])
	for _, depth := range targets {
		target := &f.frames[len(f.frames)-1-depth]
		d.targets = append(d.targets, target.at)
		target.jumps = d
	}
	fr.table = d
	f.charges.edits[f.charges.current].pauses = false
}

// pauseAt notes a branch to the frame at a depth, where the guest may have to pause. It goes on at
// a label, or here.
func (f *function) pauseAt(at, depth, to int) {
	d := f.frames[len(f.frames)-1-depth].table
	if d == nil || !f.charges.reachable() {
		return
	}
	if f.forward(d) {
		d.most = max(d.most, f.charges.gap+cheap)
		return
	}
	if last := f.charges.edits[len(f.charges.edits)-1]; last.kind != editPause || int(last.at) != at {
		f.charges.add(edit{place: place{int32(at), int32(to)}, kind: editPause})
	}
}

// forward reports whether the dispatch leads to what is still to come: the last two instructions
// set the local, and the end of that block was not read yet.
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

// The functions that are added, counted from the pause.
const (
	armFunction   = 1 // takes the host's
	bulkFunctions = 2 // copies; the one behind it fills
)

// appendFunctions appends the code of the functions that are added.
func (a *additions) appendFunctions(b []byte) []byte {
	for _, write := range []func(*writer){
		(*writer).pauseFunction, (*writer).armFunction,
		func(w *writer) { w.bulkFunction(bulkCopy) }, func(w *writer) { w.bulkFunction(bulkFill) },
	}[:a.functions()] {
		w := writer{added: a, b: []byte{0}} // no locals
		write(&w)
		w.op(opEnd)
		b = appendSized(b, w.b)
	}
	return b
}

// pauseFunction writes the one that is called for a pause.
func (w *writer) pauseFunction() {
	w.global(opGlobalGet, w.added.fuel)
	w.constant(opI64Const, 0)
	w.op(opI64LtS, opIf, emptyBlock, opUnreachable, opEnd)
	w.global(opGlobalGet, w.added.fuel)
	w.constant(opI32Const, 0)
	w.op(opCallIndirect)
	w.b = appendUint(appendUint(w.b, uint64(len(w.added.m.types)+typeHost)), w.added.table)
	w.global(opGlobalSet, w.added.mark)
}

// armFunction writes the one that takes the host's function.
func (w *writer) armFunction() {
	w.constant(opI32Const, 0)
	w.local(opLocalGet, 0)
	w.local(opTableSet, w.added.table)
}

// markOf is where the mark stands when there is so much fuel.
func markOf(fuel, slice int64) int64 { return max(0, fuel-slice) }
