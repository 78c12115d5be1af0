package meter

// One instruction may fill or copy all of the memory, 64 MiB in 20 ms, without a pause. So before
// one of more than Config.Chunk bytes stands a call of an added function, which does all of it but
// the last chunk, and pauses after each: it takes what the instruction takes, and returns what is
// left to be done. What is out of bounds is left to the instruction, which traps then before it
// does anything.

// bulk is the number of the instruction behind its prefix.
const (
	bulkNone = 0
	bulkCopy = 10
	bulkFill = 11
)

// chunks writes the call. The size is in the local.
func (w *writer) chunks(bulk byte) {
	if bulk == bulkNone || !w.added.bulk {
		return
	}
	w.local(opLocalGet, w.size)
	w.constant(opI32Const, int64(w.added.m.cfg.Chunk))
	w.op(opI32GtU, opIf)
	w.b = appendInt(w.b, int64(len(w.added.m.types)+typeBulk))
	w.local(opCall, w.added.pause+bulkFunctions+uint64(bulk-bulkCopy))
	w.op(opEnd)
}

// The parameters of both functions.
const (
	bulkTo   = 0
	bulkFrom = 1 // or the byte to fill with
	bulkSize = 2
)

// bulkFunction writes the code of one of the functions.
func (w *writer) bulkFunction(bulk byte) {
	chunk := int64(w.added.m.cfg.Chunk)
	w.within(bulkTo)
	if bulk == bulkCopy {
		w.within(bulkFrom)
		// What overlaps from below is copied from its end.
		w.local(opLocalGet, bulkTo)
		w.local(opLocalGet, bulkFrom)
		w.op(opI32GtU, opIf, emptyBlock)
		w.backward(chunk)
		w.op(opEnd)
	}
	w.forward(bulk, chunk)
}

// within returns what was given if it is out of bounds.
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

// rest returns what is left.
func (w *writer) rest() {
	w.local(opLocalGet, bulkTo)
	w.local(opLocalGet, bulkFrom)
	w.local(opLocalGet, bulkSize)
	w.op(opReturn)
}

// step adds to a local.
func (w *writer) step(local uint64, by int64) {
	w.local(opLocalGet, local)
	w.constant(opI32Const, by)
	w.op(opI32Add)
	w.local(opLocalSet, local)
}

// again pauses, and begins the loop anew if more than a chunk is left.
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
		w.op(0) // the other memory
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
