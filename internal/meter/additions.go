package meter

import (
	"encoding/binary"
	"strconv"
)

// additions are what is put into a module, behind what it has of each kind, so that no index
// changes: globals, functions with their types, and a table.
type additions struct {
	m                 *module
	fuel, stack, mark uint64 // globals
	pause             uint64 // the first of the functions, see pause.go
	table             uint64 // see refs
	pauses            bool   // there are functions for pauses
	bulk              bool   // there are functions that fill and copy, see bulk.go
	blocks            list   // types of functions whose results are those of blocks
	refs              list   // functions that are in the table, see slot
}

func newAdditions(m *module) *additions {
	globals, pauses := uint64(m.globals), m.cfg.Slice > 0 && len(m.funcs) > m.imported
	return &additions{
		m: m, fuel: globals, stack: globals + 1, mark: globals + 2, pause: uint64(len(m.funcs)), table: uint64(m.tables),
		pauses: pauses, bulk: pauses && m.memories > 0,
	}
}

// functions is how many are added.
func (a *additions) functions() int {
	switch {
	case a.bulk:
		return 4
	case a.pauses:
		return 2
	}
	return 0
}

// list numbers the items that are looked up in it, in the order of the first time.
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

// emit puts the module together. Its code section was rewritten before.
func (a *additions) emit() *Module {
	sections := a.m.sections
	out := &Module{Fuel: a.fresh("rtr_fuel"), Stack: a.fresh("rtr_stack"), Imports: a.m.imports, StackLimit: a.m.cfg.Stack}
	exports := []export{{out.Fuel, exportGlobal, a.fuel}, {out.Stack, exportGlobal, a.stack}}
	if a.m.cfg.Slice > 0 {
		out.Mark, out.Slice = a.fresh("rtr_mark"), a.m.cfg.Slice
		exports = append(exports, export{out.Mark, exportGlobal, a.mark})
	}
	if a.pauses {
		out.Arm = a.fresh("rtr_arm")
		exports = append(exports, export{out.Arm, exportFunction, a.pause + armFunction})
	}
	if a.m.start >= 0 {
		out.Start = a.fresh("rtr_start")
		exports = append(exports, export{out.Start, exportFunction, uint64(a.m.start)})
	}
	sections[secStart] = nil // it is exported
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
		case (id == secTable || id == secElement) && len(body) == 1 && body[0] == 0: // nothing in it
		default:
			out.Code = appendSection(out.Code, id, body)
		}
	}
	return out
}

// fresh returns a name that is not exported.
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

// appendSized appends bytes with their length in front.
func appendSized[T []byte | string](b []byte, part T) []byte {
	return append(appendUint(b, uint64(len(part))), part...)
}

func appendSection(b []byte, id byte, body []byte) []byte { return appendSized(append(b, id), body) }

// appendMore returns a copy of a section's vector that is about to get more items. There may be no
// section: then the vector is empty.
func appendMore(section []byte, items int) []byte {
	n, length := binary.Uvarint(section)
	return append(appendUint(make([]byte, 0, len(section)+64*(items+1)), n+uint64(items)), section[length:]...)
}

// The types that are added behind those of the module, in this order. Behind them are those of
// blocks.
const (
	typePause = iota // of the function that pauses call in the module
	typeHost         // of the host's
	typeArm          // of the one that takes the host's
	typeBulk         // of those that fill and copy
	ownTypes         // how many there are
)

func (a *additions) ownTypes() int {
	if a.pauses {
		return ownTypes
	}
	return 0
}

// resultType returns the type of a block that leaves what a function returns.
func (a *additions) resultType(function int) []byte {
	typ := a.m.funcs[function]
	switch t := &a.m.types[typ]; {
	case len(t.results) == 0:
		return []byte{emptyBlock}
	case len(t.results) == 1:
		return t.results
	case len(t.params) > 0:
		typ = len(a.m.types) + a.ownTypes() + a.blocks.lookup(typ)
	}
	return appendInt(nil, int64(typ))
}

func (a *additions) typeSection(old []byte) []byte {
	if old == nil {
		return nil
	}
	var own []byte
	if a.pauses {
		own = []byte{
			0x60, 0, 0, // typePause
			0x60, 1, typeI64, 1, typeI64,
			0x60, 1, typeFuncref, 0,
			0x60, 3, typeI32, typeI32, typeI32, 3, typeI32, typeI32, typeI32,
		}
	}
	b := append(appendMore(old, a.ownTypes()+len(a.blocks.all)), own...)
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
	for _, n := range []int{typePause, typeArm, typeBulk, typeBulk}[:a.functions()] {
		b = appendUint(b, uint64(len(a.m.types)+n))
	}
	return b
}

func (a *additions) globalSection(old []byte) []byte {
	own := [][]byte{
		appendInt([]byte{typeI64, 1, opI64Const}, a.m.cfg.Init),
		{typeI32, 1, opI32Const, 0},
	}
	if slice := a.m.cfg.Slice; slice > 0 {
		own = append(own, appendInt([]byte{typeI64, 1, opI64Const}, markOf(a.m.cfg.Init, slice)))
	}
	b := appendMore(old, len(own))
	for _, global := range own {
		b = append(append(b, global...), opEnd)
	}
	return b
}

// export is of a function or global.
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

// slot returns where in the added table a function is. The table has the host's function for
// pauses, and all functions that an instruction makes a reference to: wazero allocates a new one
// for each execution of ref.func, and keeps it for as long as the instance.
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
