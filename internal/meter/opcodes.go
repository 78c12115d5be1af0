package meter

// The opcodes of instructions with special treatment, and of inserted instructions.
const (
	opUnreachable  = 0x00
	opBlock        = 0x02
	opLoop         = 0x03
	opIf           = 0x04
	opElse         = 0x05
	opEnd          = 0x0b
	opBr           = 0x0c
	opBrIf         = 0x0d
	opBrTable      = 0x0e
	opReturn       = 0x0f
	opCall         = 0x10
	opCallIndirect = 0x11
	opDrop         = 0x1a
	opSelect       = 0x1b
	opSelectTyped  = 0x1c
	opLocalGet     = 0x20
	opLocalSet     = 0x21
	opLocalTee     = 0x22
	opGlobalGet    = 0x23
	opGlobalSet    = 0x24
	opTableGet     = 0x25
	opTableSet     = 0x26
	opMemorySize   = 0x3f
	opMemoryGrow   = 0x40
	opI32Const     = 0x41
	opI64Const     = 0x42
	opF32Const     = 0x43
	opF64Const     = 0x44
	opI32GtS       = 0x4a
	opI32GtU       = 0x4b
	opI64LtS       = 0x53
	opI64GtU       = 0x56
	opI32Add       = 0x6a
	opI32Sub       = 0x6b
	opI64Add       = 0x7c
	opI64Sub       = 0x7d
	opI64Mul       = 0x7e
	opI64Shl       = 0x86
	opI64ShrU      = 0x88
	opI64ExtendU   = 0xad
	opRefNull      = 0xd0
	opRefFunc      = 0xd2
	opGC           = 0xfb
	opMisc         = 0xfc
	opVector       = 0xfd
	opAtomic       = 0xfe

	vecConst   = 12
	emptyBlock = 0x40

	typeI32  = 0x7f
	typeI64  = 0x7e
	typeV128 = 0x7b

	typeFuncref = 0x70
)

// immediate is the kind of an instruction's immediates.
type immediate uint8

const (
	immUnknown immediate = iota // no such instruction
	immNone
	immControl // special treatment
	immLocal
	immGlobal
	immTable
	immFunc
	immData
	immElement
	immMemory  // a zero byte
	immMemory2 // two of them
	immDataMem // data segment and memory
	immElemTab // element segment and table
	immTables  // two tables
	immMemarg  // alignment and offset
	immLane    // one byte
	immMemLane // memarg and lane
	immI32     // constants
	immI64
	immBytes4
	immBytes8
	immBytes16
	immTypes // of a typed select
	immRefType
)

// instruction describes an opcode. The weight is its charge; see the package comment. An
// instruction with a scale has a size on top of the stack, which is charged in addition.
type instruction struct {
	imm    immediate
	weight uint8
	bulk   byte // see pause.go
	scale  scale
}

// scale converts a size into a charge: the size is shifted right by shift, or multiplied.
type scale struct {
	shift, times uint16 // both 0: not sized
}

func (s scale) sized() bool { return s != scale{} }

// Costs, measured on amd64. The times of simple instructions differ (0.1 to 1 ns). These costs are
// rather too high than too low: fills and copies are charged at the speed without a cache.
const (
	bytesShift   = 1       // fills and copies: 1 for 2 bytes
	entryCost    = 2       // of a table
	growEntry    = 8       // of a table, which growth copies
	growPage     = 1 << 14 // memory grows by 64 KiB, which are cleared
	growBase     = 200     // growth leaves compiled code
	bulkBase     = 20
	turnCost     = 2  // of a loop: the charge itself is most of the cost of an empty turn
	tableCost    = 3  // a read or write of an entry
	callCost     = 4  // in addition to entryCharge
	indirectCost = 8  // in addition to entryCharge
	importCost   = 50 // leaves compiled code; the host charges for its own work
	entryCharge  = 2  // the work of a function before its first instruction
)

// instructions are the instructions of one byte. Missing opcodes are unassigned or belong to
// proposals.
var instructions = func() (all [256]instruction) {
	set := func(from, to int, in instruction) {
		for op := from; op <= to; op++ {
			all[op] = in
		}
	}
	set(0x01, 0x01, instruction{imm: immNone}) // nop
	set(opUnreachable, opUnreachable, instruction{imm: immControl, weight: 1})
	set(opBlock, opLoop, instruction{imm: immControl})
	set(opIf, opIf, instruction{imm: immControl, weight: 1})
	set(opElse, opElse, instruction{imm: immControl})
	set(opEnd, opEnd, instruction{imm: immControl})
	set(opBr, opBrIf, instruction{imm: immControl, weight: 1})
	set(opBrTable, opBrTable, instruction{imm: immControl, weight: 3})
	set(opReturn, opReturn, instruction{imm: immControl, weight: 1})
	set(opCall, opCallIndirect, instruction{imm: immControl}) // see callCost
	set(0x1a, 0x1b, instruction{imm: immNone, weight: 1})     // drop, select
	set(opSelectTyped, opSelectTyped, instruction{imm: immTypes, weight: 1})
	set(opLocalGet, opLocalTee, instruction{imm: immLocal, weight: 1})
	set(opGlobalGet, opGlobalSet, instruction{imm: immGlobal, weight: 1})
	set(opTableGet, opTableSet, instruction{imm: immTable, weight: tableCost})
	set(0x28, 0x3e, instruction{imm: immMemarg, weight: 1}) // loads and stores
	set(opMemorySize, opMemorySize, instruction{imm: immMemory, weight: 1})
	set(opMemoryGrow, opMemoryGrow, instruction{imm: immMemory, weight: growBase, scale: scale{times: growPage}})
	set(opI32Const, opI32Const, instruction{imm: immI32, weight: 1})
	set(opI64Const, opI64Const, instruction{imm: immI64, weight: 1})
	set(opF32Const, opF32Const, instruction{imm: immBytes4, weight: 1})
	set(opF64Const, opF64Const, instruction{imm: immBytes8, weight: 1})
	for op := 0x45; op <= 0xc4; op++ {
		all[op] = instruction{imm: immNone, weight: numericWeight(byte(op))}
	}
	set(opRefNull, opRefNull, instruction{imm: immRefType, weight: 1})
	set(0xd1, 0xd1, instruction{imm: immNone, weight: 1}) // ref.is_null
	// see additions.slot
	set(opRefFunc, opRefFunc, instruction{imm: immFunc, weight: tableCost + 1})
	return all
}()

func numericWeight(op byte) uint8 {
	switch {
	case op >= 0x6d && op <= 0x70, op >= 0x7f && op <= 0x82: // integer div and rem
		return 8
	case op >= 0x8d && op <= 0x91, op >= 0x9b && op <= 0x9f: // ceil, floor, trunc, nearest, sqrt
		return 4
	case op == 0x95, op == 0xa3: // float div
		return 4
	case op == 0x96, op == 0x97, op == 0xa4, op == 0xa5: // float min, max
		return 4
	case op >= 0xa8 && op <= 0xab, op >= 0xae && op <= 0xb1: // checked trunc
		return 4
	}
	return 1
}

// misc returns the instruction of an opcode after 0xfc.
func misc(op uint32) instruction {
	bulk := func(imm immediate, s scale) instruction { return instruction{imm: imm, weight: bulkBase, scale: s} }
	switch op {
	case 0, 1, 2, 3, 4, 5, 6, 7: // trunc_sat
		return instruction{imm: immNone, weight: 4}
	case 8: // memory.init
		return bulk(immDataMem, scale{shift: bytesShift})
	case 9: // data.drop
		return instruction{imm: immData, weight: 2}
	case bulkCopy: // memory.copy
		return instruction{imm: immMemory2, weight: bulkBase, scale: scale{shift: bytesShift}, bulk: bulkCopy}
	case bulkFill: // memory.fill
		return instruction{imm: immMemory, weight: bulkBase, scale: scale{shift: bytesShift}, bulk: bulkFill}
	case 12: // table.init
		return bulk(immElemTab, scale{times: entryCost})
	case 13: // elem.drop
		return instruction{imm: immElement, weight: 2}
	case 14: // table.copy
		return bulk(immTables, scale{times: entryCost})
	case 15: // table.grow
		return instruction{imm: immTable, weight: growBase, scale: scale{times: growEntry}}
	case 16: // table.size
		return instruction{imm: immTable, weight: 2}
	case 17: // table.fill
		return bulk(immTable, scale{times: entryCost})
	}
	return instruction{}
}

// vector returns the instruction of an opcode after 0xfd.
func vector(op uint32) instruction {
	switch {
	case op <= 11, op == 92, op == 93: // loads and the store
		return instruction{imm: immMemarg, weight: 2}
	case op == vecConst:
		return instruction{imm: immBytes16, weight: 2}
	case op == 13: // shuffle
		return instruction{imm: immBytes16, weight: 6}
	case op >= 21 && op <= 34: // lanes
		return instruction{imm: immLane, weight: 2}
	case op >= 84 && op <= 91: // loads and stores of a lane
		return instruction{imm: immMemLane, weight: 3}
	case op > 255, vectorHole(op):
		return instruction{}
	}
	return instruction{imm: immNone, weight: vectorWeight(op)}
}

// vectorHole reports whether no instruction has this number.
func vectorHole(op uint32) bool {
	switch op {
	case 0x9a, 0xa2, 0xa5, 0xa6, 0xaf, 0xb0, 0xb2, 0xb3, 0xb4, 0xbb, 0xc2, 0xc5, 0xc6, 0xcf, 0xd0, 0xd2, 0xd3, 0xd4, 0xe2, 0xee:
		return true
	}
	return false
}

func vectorWeight(op uint32) uint8 {
	switch op {
	case 0x62, // popcnt
		0x6b, 0x6c, 0x6d, 0xcc, // shifts without an instruction of their own
		0x8b, 0x8c, 0x8d, 0xab, 0xac, 0xad, 0xcb, 0xcd,
		0xd5,                   // i64x2.mul
		0xd8, 0xd9, 0xda, 0xdb, // i64x2 comparisons
		0xe8, 0xe9, 0xea, 0xeb, 0xf4, 0xf5, 0xf6, 0xf7, // float min and max
		0xf8, 0xf9, 0xfa, 0xfb, 0xfc, 0xfd, 0xfe, 0xff, // conversions
		0xe3, 0xe7, 0xef, 0xf3: // sqrt and div
		return 8
	}
	return 3
}

// featureOf returns the proposal of an opcode beyond WebAssembly 2.0, or "".
func featureOf(op byte) string {
	switch {
	case op >= 0x06 && op <= 0x0a, op == 0x18, op == 0x19, op == 0x1f:
		return "exception-handling"
	case op == 0x12, op == 0x13:
		return "tail-call"
	case op == 0x14, op == 0x15, op >= 0xd4 && op <= 0xd6:
		return "function-references"
	case op == 0xd3, op == opGC:
		return "gc"
	case op >= 0xe0 && op <= 0xe6:
		return "stack-switching"
	case op == opAtomic:
		return "threads"
	}
	return ""
}
