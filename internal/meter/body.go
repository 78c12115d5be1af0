package meter

import "math"

// body reads the instructions of one function and checks that the indexes in them exist.
type body struct {
	reader
	m        *module
	number   int    // index of the function in the module
	locals   int    // parameters included
	groups   int    // of locals
	declared []byte // the groups, encoded
	size     int    // bytes of all locals and of the results
}

func (b *body) failAt(at int, format string, args ...any) { b.fail(b.start+at, format, args...) }

func (b *body) featureAt(at int, name string) {
	b.failWith(&FeatureError{Feature: name, Function: b.number, Offset: b.start + at})
}

// signature returns the type of the function.
func (b *body) signature() *signature { return &b.m.types[b.m.funcs[b.number]] }

// readLocals reads the locals of a function.
func (b *body) readLocals(t *signature) {
	b.locals, b.size = len(t.params), t.size
	b.groups = b.count(math.MaxUint32, "groups of locals")
	from := b.i
	for range b.groups {
		at := b.i
		n := b.u32()
		typ := valueType(&b.reader)
		if limit := b.m.cfg.MaxLocals; uint64(b.locals)+uint64(n) > uint64(limit) {
			b.failAt(at, "function %d has more than %d locals", b.number, limit)
		}
		if !b.ok() {
			break
		}
		b.locals += int(n)
		b.size += int(n) * sizeOf(typ)
	}
	b.declared = b.b[from:b.i]
}

// longer reads the rest of an opcode of several bytes. After 0xfd it must be in its shortest form:
// wazero reads one byte there. It would execute the rest of a longer form, and then immediates that
// the guest chose, as instructions that were never charged.
func (b *body) longer(at int, first byte) (in instruction) {
	if first != opMisc && first != opVector {
		if name := featureOf(first); name != "" {
			b.featureAt(at, name)
		}
		b.failAt(at, "unknown instruction %#x", first)
		return in
	}
	sub := b.u32()
	if first == opMisc {
		in = misc(sub)
	} else {
		in = vector(sub)
	}
	switch {
	case first == opVector && b.i-at != 1+len(appendUint(nil, uint64(sub))):
		b.failAt(at, "instruction %#x %d is not in its shortest form", first, sub)
	case in.imm != immUnknown:
		return in
	case first == opVector && sub >= 0x100 && sub <= 0x12f:
		b.featureAt(at, "relaxed-simd")
	case first == opMisc && sub == 18:
		b.featureAt(at, "memory-control")
	case first == opMisc && sub >= 19 && sub <= 22:
		b.featureAt(at, "wide-arithmetic")
	}
	b.failAt(at, "unknown instruction %#x %d", first, sub)
	return in
}

// blockType reads the parameters and results of a block.
func (b *body) blockType() (t signature) {
	switch c := b.peek(); {
	case c == emptyBlock:
		b.i++
	case c >= 0x60 && c < 0x80: // a type: one byte of a negative number
		valueType(&b.reader)
		t.results = b.b[b.i-1 : b.i]
	default:
		at := b.i
		x := b.signed(33)
		if x < 0 || x >= int64(len(b.m.types)) {
			b.failAt(at, "type %d does not exist: there are %d", x, len(b.m.types))
			return t
		}
		t = b.m.types[x]
	}
	return t
}

func (b *body) peek() byte {
	if b.left() == 0 {
		return 0
	}
	return b.b[b.i]
}

// immediate reads the immediates of an instruction.
func (b *body) immediate(imm immediate) {
	switch imm {
	case immLocal:
		b.index(b.locals, "local")
	case immGlobal:
		b.index(b.m.globals, "global")
	case immTable:
		b.index(b.m.tables, "table")
	case immData:
		b.dataIndex()
	case immElement:
		b.index(b.m.elements, "element segment")
	case immMemory:
		b.memoryIndex()
	case immMemory2:
		b.memoryIndex()
		b.memoryIndex()
	case immDataMem:
		b.dataIndex()
		b.memoryIndex()
	case immElemTab:
		b.index(b.m.elements, "element segment")
		b.index(b.m.tables, "table")
	case immTables:
		b.index(b.m.tables, "table")
		b.index(b.m.tables, "table")
	case immMemarg:
		b.memarg()
	case immMemLane:
		b.memarg()
		b.byte()
	case immLane:
		b.byte()
	case immTypes:
		for range b.count(b.m.cfg.MaxValues, "types") {
			valueType(&b.reader)
		}
	case immRefType:
		refType(&b.reader)
	default:
		b.constant(imm)
	}
}

func (b *body) constant(imm immediate) {
	switch imm {
	case immI32:
		b.signed(32)
	case immI64:
		b.signed(64)
	case immBytes4:
		b.bytes(4)
	case immBytes8:
		b.bytes(8)
	case immBytes16:
		b.bytes(16)
	default: // no immediate
	}
}

// reference reads the function index of ref.func.
func (b *body) reference(at int) int {
	function := b.index(len(b.m.funcs), "function")
	if b.ok() && (function >= len(b.m.declared) || !b.m.declared[function]) {
		b.failAt(at, "reference to function %d, which no export, element or global names", function)
	}
	return function
}

func (b *body) dataIndex() {
	if b.m.data < 0 {
		b.failAt(b.i, "data segment used without a data count section")
		return
	}
	b.index(b.m.data, "data segment")
}

func (b *body) memoryIndex() {
	if b.byte() != 0 {
		b.featureAt(b.i-1, "multi-memory")
	}
}

func (b *body) memarg() {
	at := b.i
	align := b.u32()
	switch {
	case align >= 64 && align < 128:
		b.featureAt(at, "multi-memory")
	case align > 31:
		b.failAt(at, "alignment of 2^%d", align)
	}
	b.u32()
}
