package wasm_test

import (
	"slices"
)

// tree is a guest in which each function calls the next one twice.
func tree(depth int) module {
	m := guest(opCall, 3, constant(opI64, 0))
	for i := range depth {
		f := function{}
		if i < depth-1 {
			f.body = code(opCall, uleb(4+i), opCall, uleb(4+i))
		}
		m.funcs = append(m.funcs, f)
	}
	return m
}

func mutual() module {
	m := guest(opCall, 3, constant(opI64, 0))
	m.funcs = append(m.funcs, function{body: code(opCall, 4)}, function{body: code(opCall, 3)})
	return m
}

// oneTable is a table with rtr_handle in it.
func oneTable(m module) module {
	m.raw = map[byte][]byte{
		4: {1, 0x70, 0, 1},
		9: slices.Concat([]byte{1, 0}, constant(opI32, 0), []byte{opEnd, 1, 2}),
	}
	return m
}

func indirect() module {
	return oneTable(guest(opGet, 0, opGet, 1, constant(opI32, 0), 0x11 /* call_indirect */, 2, 0))
}

func indirectTo(entry int64) module {
	return oneTable(guest(opGet, 0, opGet, 1, constant(opI32, entry), 0x11 /* call_indirect */, 2, 0))
}

// largeFrame is a recursion of a function with many locals that are in use across the call.
func largeFrame() module {
	m := guest(opCall, 3, constant(opI64, 0))
	const locals = 5000
	var body []byte
	for i := range locals {
		body = append(body, code(opMemorySize, 0, opSet, uleb(i))...)
	}
	body = append(body, opCall, 3)
	for i := range locals {
		body = append(body, code(opGet, uleb(i), opDrop)...)
	}
	m.funcs = append(m.funcs, function{locals: locals, body: body})
	return m
}

// tableGrow is a guest that lets its table grow again and again.
func tableGrow(by int64) module {
	return oneTable(guest(opLoop, empty, 0xd0 /* ref.null */, 0x70, constant(opI32, by), 0xfc, 15 /* table.grow */, 0, opDrop, opBr, 0, opEnd, constant(opI64, 0)))
}

// atThird is a guest that does something in the third call of each instance.
func atThird(what []byte) module {
	const at = 0x80
	return guest(
		constant(opI32, at), constant(opI32, at), opLoad, 2, 0, constant(opI32, 1), opAdd, 0x36 /* i32.store */, 2, 0,
		constant(opI32, at), opLoad, 2, 0, constant(opI32, 3), opGeU, opIf, empty, what, opEnd, constant(opI64, 0),
	)
}
