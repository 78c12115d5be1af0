package meter

import (
	"bytes"
	"encoding/binary"
	"slices"
)

// The pause is a function behind those of the module, so that no index changes, and none of the module's can name it. It is called at
// loop heads and at the entries of functions that call others, once the fuel is below Mark: whatever goes on for long comes by one of
// these. If there is no fuel it traps. Else it puts Mark a slice below what is left, and grows the memory by nothing: the engine leaves
// compiled code for that, and comes to where the host's runtime can stop it.
//
// It is not called where other charges are: code around a call, however seldom it is made, is compiled to be slower.

// pauseFunctions is how many functions are added.
func (p *parser) pauseFunctions() int {
	if p.cfg.Slice > 0 && len(p.funcs) > p.imported.funcs {
		return 1
	}
	return 0
}

// writer returns a writer of functions.
func (p *parser) writer(b []byte) writer {
	return writer{
		b: b, fuel: uint64(p.globals), stack: uint64(p.globals + 1), mark: uint64(p.globals + 2),
		pauses: p.pauseFunctions() > 0, pauseAt: uint64(len(p.funcs)),
	}
}

// chargeAt writes a charge; entry: it is that of a function that calls others.
func (w *writer) chargeAt(e *edit, entry bool) {
	to := int64(here)
	if e.again {
		to = 0 // the loop begins anew: what comes is compiled as if there were no call
	}
	switch pauses := w.pauses && (entry || e.pauses); {
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

// pause takes the fuel that is on the stack: if fuel < mark { call pause; if to is a label: fuel += weight; goto to }
func (w *writer) pause(weight, to int64) {
	if w.cached {
		w.local(opLocalGet, w.below)
	} else {
		w.global(opGlobalGet, w.mark)
	}
	w.op(opI64LtS, opIf, emptyBlock)
	if w.cached {
		w.move(editStore)
	}
	w.op(opCall)
	w.b = appendUint(w.b, w.pauseAt)
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
	w.global(opGlobalGet, w.mark)
	w.local(opLocalSet, w.below)
}

// dispatch is a loop that begins with a table of branches and nothing else: as all of Go's functions, where a jump sets a local and
// begins the loop anew.
type dispatch struct {
	local   uint64
	targets []int // where the blocks begin whose ends the table leads to
}

// dispatch finds out whether the loop at an index, in whose head a table of branches stands, is one. Then what goes back to its head
// pauses, not the head: most jumps go forward, and need not.
func (f *function) dispatch(index int, targets []int) {
	fr := &f.frames[index]
	head := f.b[fr.at:f.before[1]]
	if !bytes.HasPrefix(head, []byte{opLoop, emptyBlock}) {
		return
	}
	for head = head[2:]; bytes.HasPrefix(head, []byte{opBlock, emptyBlock}); {
		head = head[2:]
	}
	get := f.b[f.before[1]:]
	if len(head) != 0 || get[0] != opLocalGet {
		return
	}
	d := &dispatch{}
	d.local, _ = binary.Uvarint(get[1:])
	for _, depth := range targets {
		d.targets = append(d.targets, f.frames[len(f.frames)-1-depth].at)
	}
	fr.table = d
	f.edits[f.charge].pauses = false
}

// pauseAt notes a branch to the frame at a depth, where the guest may have to pause. It goes on at a label, or here.
func (f *function) pauseAt(at, depth, to int) {
	d := f.frames[len(f.frames)-1-depth].table
	if d == nil || f.charge == none || f.forward(d) {
		return
	}
	if last := f.edits[len(f.edits)-1]; last.kind != editPause || int(last.at) != at {
		f.edits = append(f.edits, edit{at: int32(at), kind: editPause, depth: int32(to)})
	}
}

// forward reports whether the dispatch leads to what is still to come: the last two instructions set the local, and the end of that
// block was not read yet.
func (f *function) forward(d *dispatch) bool {
	set, value := f.b[f.before[1]:], f.b[f.before[0]:]
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

// appendPause appends the code of the function.
func (p *parser) appendPause(b []byte) []byte {
	const left = 0 // the only local
	w := p.writer([]byte{1, 1, typeI64})
	w.global(opGlobalGet, w.fuel)
	w.constant(opI64Const, 0)
	w.op(opI64LtS, opIf, emptyBlock, opUnreachable, opEnd)
	w.global(opGlobalGet, w.fuel)
	w.constant(opI64Const, p.cfg.Slice)
	w.op(opI64Sub)
	w.local(opLocalTee, left)
	w.constant(opI64Const, 0) // the smallest mark there is: below it there is no fuel
	w.local(opLocalGet, left)
	w.constant(opI64Const, 0)
	w.op(opI64GtS, opSelect)
	w.global(opGlobalSet, w.mark)
	if p.memories > 0 {
		w.constant(opI32Const, 0)
		w.op(opMemoryGrow, 0, opDrop)
	}
	w.op(opEnd)
	return append(appendUint(b, uint64(len(w.b))), w.b...)
}

// pauseType returns the type of the function: one that the module has, or another.
func (p *parser) pauseType() int {
	for i, t := range p.types {
		if t.params == 0 && t.results == 0 {
			return i
		}
	}
	return len(p.types) + len(p.added)
}

// appendMore returns a copy of a section's vector that is about to get more items.
func appendMore(section []byte, items int) []byte {
	n, length := binary.Uvarint(section)
	return append(appendUint(make([]byte, 0, len(section)+64*(items+1)), n+uint64(items)), section[length:]...)
}

// markOf is where the mark stands when there is so much fuel.
func markOf(fuel, slice int64) int64 { return max(0, fuel-slice) }
