package meter

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
	w.local(opCall, w.added.pause+bulkFunctions+uint64(bulk-bulkCopy))
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

// step adds a constant to a local.
func (w *writer) step(local uint64, by int64) {
	w.local(opLocalGet, local)
	w.constant(opI32Const, by)
	w.op(opI32Add)
	w.local(opLocalSet, local)
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
