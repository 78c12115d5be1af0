package meter

import (
	"encoding/binary"
	"slices"
	"strconv"
)

// additions holds the globals, functions, types and the table that metering adds to a module. They
// come behind the module's own, so that no index changes.
type additions struct {
	m                 *module
	fuel, stack, rest uint64 // globals
	pause             uint64 // the first added function, see pause.go
	table             uint64 // see refs
	pauses            bool   // the module gets functions for pauses
	bulk              bool   // the module gets functions that fill and copy, see pause.go
	blocks            list   // types whose results are also the results of added blocks
	refs              list   // functions that the added table contains, see slot
}

func newAdditions(m *module) *additions {
	pauses := len(m.funcs) > m.imported
	global := [ownGlobals]int{m.globals, m.globals + 1, m.globals + 2}
	if i := slices.IndexFunc(global[:], m.slow); i >= 0 {
		global[i], global[2] = global[2], global[i] // only pauses use Rest
	}
	return &additions{
		m:    m,
		fuel: uint64(global[0]), stack: uint64(global[1]), rest: uint64(global[2]), //nolint:gosec // limited
		pause: uint64(len(m.funcs)), table: uint64(m.tables), pauses: pauses, bulk: pauses && m.memories > 0,
	}
}

const ownGlobals = 3

// slow reports whether a processor may take the accesses to a global for accesses to the size of
// the memory. The engine, wazero's compiler, reaches both by the same base register: the size at 16
// bytes behind it, then 24 bytes for each imported function, then 16 for each global. AMD's Zen 5
// predicts that a load reads the value that was stored by the same register and a displacement with
// the same last 10 bits, and begins again if the prediction was wrong. Most accesses to memory load
// its size: guests took three times as long when the fuel was stored at 1,040 bytes.
func (m *module) slow(global int) bool {
	const context, memory, function, size, period = 8, 16, 24, 16, 1024
	globals := context + memory + function*m.imported
	globals += globals % 16 // it is a multiple of 8
	return m.memories > 0 && (globals+16*global)%period == size
}

// functions returns the number of added functions.
func (a *additions) functions() int {
	switch {
	case a.bulk:
		return 5
	case a.pauses:
		return 3
	}
	return 0
}

// list numbers items in the order of their first look-up.
type list struct {
	all    []int
	number map[int]int
}

func (l *list) lookup(item int) int {
	n, ok := l.number[item]
	if !ok {
		if l.number == nil {
			l.number = make(map[int]int)
		}
		n = len(l.all)
		l.all, l.number[item] = append(l.all, item), n
	}
	return n
}

// emit assembles the rewritten module. The code section was rewritten before.
func (a *additions) emit() *Module {
	sections := a.m.sections
	out := &Module{
		Fuel: a.fresh("rtr_fuel"), Stack: a.fresh("rtr_stack"), Rest: a.fresh("rtr_rest"),
		Slice: a.m.cfg.Slice, Functions: len(a.m.funcs), Imports: a.m.imports, StackLimit: a.m.cfg.Stack,
	}
	exports := []export{{out.Fuel, exportGlobal, a.fuel}, {out.Stack, exportGlobal, a.stack}, {out.Rest, exportGlobal, a.rest}}
	if a.pauses {
		out.Arm = a.fresh("rtr_arm")
		exports = append(exports, export{out.Arm, exportFunction, a.pause + armFunction})
	}
	if a.m.start >= 0 {
		out.Start = a.fresh("rtr_start")
		exports = append(exports, export{out.Start, exportFunction, uint64(a.m.start)})
	}
	sections[secStart] = nil // exported instead
	sections[secType] = a.typeSection(sections[secType])
	sections[secFunction] = a.functionSection(sections[secFunction])
	sections[secTable] = a.tableSection(sections[secTable])
	sections[secGlobal] = a.globalSection(sections[secGlobal])
	sections[secExport] = exportSection(sections[secExport], exports)
	sections[secElement] = a.elementSection(sections[secElement])
	size := 8
	for _, body := range sections {
		size += len(body) + 1 + binary.MaxVarintLen32
	}
	out.Code = append(make([]byte, 0, size), "\x00asm\x01\x00\x00\x00"...)
	for _, id := range order {
		switch body := sections[id]; {
		case body == nil:
		// an empty section
		case (id == secTable || id == secElement) && len(body) == 1 && body[0] == 0:
		default:
			out.Code = appendSection(out.Code, id, body)
		}
	}
	return out
}

// fresh returns a name that the module does not export.
func (a *additions) fresh(name string) string {
	for i, base := 2, name; a.m.exports[name]; i++ {
		name = base + "_" + strconv.Itoa(i)
	}
	return name
}

func appendUint(b []byte, v uint64) []byte { return binary.AppendUvarint(b, v) }

func appendInt(b []byte, v int64) []byte {
	for {
		c := byte(v & 0x7f)
		v >>= 7
		if v == 0 && c&0x40 == 0 || v == -1 && c&0x40 != 0 {
			return append(b, c)
		}
		b = append(b, c|0x80)
	}
}

// appendSized appends bytes after their length.
func appendSized[T []byte | string](b []byte, part T) []byte {
	return append(appendUint(b, uint64(len(part))), part...)
}

func appendSection(b []byte, id byte, body []byte) []byte { return appendSized(append(b, id), body) }

// appendMore returns a copy of a section's vector whose count is raised by items. The caller
// appends the items. A missing section counts as an empty vector.
func appendMore(section []byte, items int) []byte {
	n, length := binary.Uvarint(section)
	return append(appendUint(make([]byte, 0, len(section)+64*(items+1)), n+uint64(items)), section[length:]...)
}

// The added types, in this order, behind the types of the module. The types of blocks follow them.
const (
	typePause = iota // the added function that calls the host for a pause
	typeHost         // the host's function
	typeArm          // the added function that receives the host's function
	typeCold         // the added function that checks the guest before a cold call
	typeBulk         // the added functions that fill and copy
	ownTypes         // the number of these types
)

// resultType returns the type of a block with the results of a function.
func (a *additions) resultType(function int) []byte {
	typ := a.m.funcs[function]
	switch t := &a.m.types[typ]; {
	case len(t.results) == 0:
		return []byte{emptyBlock}
	case len(t.results) == 1:
		return t.results
	case len(t.params) > 0:
		typ = len(a.m.types) + ownTypes + a.blocks.lookup(typ)
	}
	return appendInt(nil, int64(typ))
}

func (a *additions) typeSection(old []byte) []byte {
	if !a.pauses {
		return old
	}
	b := append(
		appendMore(old, ownTypes+len(a.blocks.all)),
		0x60, 0, 0, // typePause
		0x60, 1, typeI64, 1, typeI64,
		0x60, 1, typeFuncref, 0,
		0x60, 1, typeI32, 0,
		0x60, 3, typeI32, typeI32, typeI32, 3, typeI32, typeI32, typeI32,
	)
	for _, t := range a.blocks.all {
		b = appendSized(append(b, 0x60, 0), a.m.types[t].results)
	}
	return b
}

func (a *additions) functionSection(old []byte) []byte {
	if !a.pauses {
		return old
	}
	b := appendMore(old, a.functions())
	for _, n := range []int{typePause, typeArm, typeCold, typeBulk, typeBulk}[:a.functions()] {
		b = appendUint(b, uint64(len(a.m.types)+n))
	}
	return b
}

func (a *additions) globalSection(old []byte) []byte {
	first := min(a.m.cfg.Init, a.m.cfg.Slice)
	var own [ownGlobals][]byte
	from := uint64(a.m.globals) //nolint:gosec // limited
	own[a.fuel-from] = appendInt([]byte{typeI64, 1, opI64Const}, first)
	own[a.stack-from] = []byte{typeI32, 1, opI32Const, 0}
	own[a.rest-from] = appendInt([]byte{typeI64, 1, opI64Const}, a.m.cfg.Init-first)
	b := appendMore(old, len(own))
	for _, global := range own {
		b = append(append(b, global...), opEnd)
	}
	return b
}

// export is an exported function or global.
type export struct {
	name  string
	kind  byte
	index uint64
}

const (
	exportFunction = 0
	exportGlobal   = 3
)

func exportSection(old []byte, own []export) []byte {
	b := appendMore(old, len(own))
	for _, e := range own {
		b = appendUint(append(appendSized(b, e.name), e.kind), e.index)
	}
	return b
}

// slot returns the index of a function in the added table. The table contains the host's function
// for pauses and all functions that the code refers to: wazero allocates a reference at each
// execution of ref.func and keeps it as long as the instance.
func (a *additions) slot(function int) int { return 1 + a.refs.lookup(function) }

func (a *additions) tableSection(old []byte) []byte {
	entries := uint64(1 + len(a.refs.all))
	if !a.pauses && entries == 1 {
		return old
	}
	return appendUint(appendUint(append(appendMore(old, 1), typeFuncref, 1), entries), entries)
}

func (a *additions) elementSection(old []byte) []byte {
	if len(a.refs.all) == 0 {
		return old
	}
	b := appendUint(append(appendMore(old, 1), 2), a.table)
	b = appendUint(append(b, opI32Const, 1, opEnd, 0), uint64(len(a.refs.all)))
	for _, function := range a.refs.all {
		b = appendUint(b, uint64(function))
	}
	return b
}
