package meter

// instruction reads one instruction.
func (f *function) instruction() {
	at := f.i
	op := f.byte()
	in := instructions[op]
	if op == opMisc || op == opVector {
		in = f.prefixed(at, op)
	}
	switch {
	case in.imm == immUnknown:
		if name := featureOf(op); name != "" {
			f.featureAt(at, name)
		}
		f.failAt(at, "unknown instruction %#x", op)
		return
	case in.imm == immControl:
		f.control(at, op)
		return
	case !in.scale.sized():
		f.pay(int64(in.weight))
	case f.charge != none:
		f.sized = true
		f.edits = append(f.edits, edit{at: int32(at), depth: int32(len(f.frames)), kind: editSized, scale: in.scale, weight: int64(in.weight)})
	}
	f.immediate(in.imm)
}

func (f *function) featureAt(at int, name string) {
	f.failWith(&FeatureError{Feature: name, Function: f.number, Offset: f.start + at})
}

// prefixed reads the opcode after a prefix. After 0xfd it must be in its shortest form: wazero reads but one byte there, and would
// take the rest of a longer form, and then immediates of the guest's choice, for instructions that were never charged.
func (f *function) prefixed(at int, prefix byte) instruction {
	sub := f.u32()
	if prefix == opVector && f.i-at != 1+len(appendUint(nil, uint64(sub))) {
		f.failAt(at, "instruction %#x %d is not in its shortest form", prefix, sub)
	}
	var in instruction
	if prefix == opMisc {
		in = misc(sub)
	} else {
		in = vector(sub)
	}
	if in.imm != immUnknown || !f.ok() {
		return in
	}
	switch {
	case prefix == opVector && sub >= 0x100 && sub <= 0x12f:
		f.featureAt(at, "relaxed-simd")
	case prefix == opMisc && sub == 18:
		f.featureAt(at, "memory-control")
	case prefix == opMisc && sub >= 19 && sub <= 22:
		f.featureAt(at, "wide-arithmetic")
	}
	f.failAt(at, "unknown instruction %#x %d", prefix, sub)
	return in
}

// control reads an instruction that changes what is done next.
func (f *function) control(at int, op byte) {
	switch op {
	case opBlock, opLoop, opIf:
		if op == opIf {
			f.pay(1)
		}
		f.push(at, op, f.blockType())
	case opElse:
		f.elseBranch()
	case opEnd:
		f.pop()
	case opUnreachable:
		f.pay(1)
		f.leave()
	case opBr:
		f.pay(1)
		f.jump(at, op)
		f.leave()
	case opBrIf:
		f.pay(1)
		f.jump(at, op)
		f.branch()
	case opBrTable:
		f.pay(3)
		f.table(at)
	case opReturn:
		f.pay(1)
		f.store(at, 0)
		f.label(len(f.frames) - 1)
		f.leave()
	case opCall:
		callee := f.index(len(f.p.funcs), "function")
		if callee < f.p.imported.funcs {
			f.pay(importCost)
		}
		if f.ok() {
			f.call(at, f.p.funcs[callee], callCost)
		}
	case opCallIndirect:
		t := f.index(len(f.p.types), "type")
		f.index(f.p.tables, "table")
		if f.ok() {
			f.call(at, t, indirectCost)
		}
	}
}

func (f *function) call(at, typ int, cost int64) {
	t := f.p.types[typ]
	f.values += t.params + t.results
	if f.charge == none {
		return
	}
	f.calls, f.frames[len(f.frames)-1].calls = true, true
	f.pay(cost + entryCharge + int64(t.params+t.results)/4)
	f.edits = append(f.edits, edit{at: int32(at), kind: editCall})
}

// jump reads the label of a branch.
func (f *function) jump(at int, op byte) {
	depth := f.index(len(f.frames), "label")
	if !f.ok() {
		return
	}
	if op == opBr {
		f.pauseAt(at, depth, depth)
	} else {
		f.pauseAt(at, depth, here)
	}
	f.store(at, len(f.frames)-1-depth)
	f.label(depth)
}

// table reads a table of branches.
func (f *function) table(at int) {
	n := f.count(f.p.cfg.MaxValues, "labels")
	f.targets = f.targets[:0]
	outermost := len(f.frames) - 1
	for range n + 1 {
		depth := f.index(len(f.frames), "label")
		if !f.ok() {
			return
		}
		f.pauseAt(at, depth, here)
		f.label(depth)
		outermost = min(outermost, len(f.frames)-1-depth)
		f.targets = append(f.targets, depth)
	}
	f.blocks -= n - n/4 // they cost less than others
	before := len(f.edits)
	f.store(at, outermost)
	f.deferHead(f.targets, len(f.edits)-before)
	f.leave()
}

// blockType reads what a block takes and leaves.
func (f *function) blockType() (t signature) {
	switch c := f.peek(); {
	case c == emptyBlock:
		f.i++
	case c >= 0x60 && c < 0x80: // the one byte of a negative number: a type
		valueType(&f.reader)
		t.results = 1
	default:
		at := f.i
		x := f.signed(33)
		if x < 0 || x >= int64(len(f.p.types)) {
			f.failAt(at, "type %d does not exist: there are %d", x, len(f.p.types))
			return t
		}
		t = f.p.types[x]
	}
	return t
}

func (f *function) peek() byte {
	if f.left() == 0 {
		return 0
	}
	return f.b[f.i]
}

// immediate reads what follows an opcode.
func (f *function) immediate(imm immediate) {
	switch imm {
	case immLocal:
		f.index(f.locals, "local")
	case immGlobal:
		f.index(f.p.globals, "global")
	case immTable:
		f.index(f.p.tables, "table")
	case immFunc:
		f.index(len(f.p.funcs), "function")
	case immData:
		f.dataIndex()
	case immElement:
		f.index(f.p.elements, "element segment")
	case immMemory:
		f.memoryIndex()
	case immMemory2:
		f.memoryIndex()
		f.memoryIndex()
	case immDataMem:
		f.dataIndex()
		f.memoryIndex()
	case immElemTab:
		f.index(f.p.elements, "element segment")
		f.index(f.p.tables, "table")
	case immTables:
		f.index(f.p.tables, "table")
		f.index(f.p.tables, "table")
	case immMemarg:
		f.memarg()
	case immMemLane:
		f.memarg()
		f.byte()
	case immLane:
		f.byte()
	case immTypes:
		for range f.count(f.p.cfg.MaxValues, "types") {
			valueType(&f.reader)
		}
	case immRefType:
		refType(&f.reader)
	default:
		f.constant(imm)
	}
}

func (f *function) constant(imm immediate) {
	switch imm {
	case immI32:
		f.signed(32)
	case immI64:
		f.signed(64)
	case immBytes4:
		f.bytes(4)
	case immBytes8:
		f.bytes(8)
	case immBytes16:
		f.bytes(16)
	default: // nothing follows
	}
}

func (f *function) dataIndex() {
	if f.p.data < 0 {
		f.failAt(f.i, "data segment used without a data count section")
		return
	}
	f.index(f.p.data, "data segment")
}

func (f *function) memoryIndex() {
	if f.byte() != 0 {
		f.featureAt(f.i-1, "multi-memory")
	}
}

func (f *function) memarg() {
	at := f.i
	align := f.u32()
	switch {
	case align >= 64 && align < 128:
		f.featureAt(at, "multi-memory")
	case align > 31:
		f.failAt(at, "alignment of 2^%d", align)
	}
	f.u32()
}
