package main

import (
	"encoding/binary"
	"slices"
)

const (
	batchSize = 64
	inputAt   = 1 << 16

	// The pages of the modules below: a megabyte for the input at inputAt, then the memory of
	// chase.
	pages      = 33
	chaseBase  = pages << 16
	chaseLines = 1 << 19 // lines of 64 bytes: 32 MiB
)

// The instructions of the modules below.
const (
	opUnreachable, opLoop, opEnd, opBr, opBrIf      = 0x00, 0x03, 0x0b, 0x0c, 0x0d
	opGet, opSet, opTee                             = 0x20, 0x21, 0x22
	opLoad, opStore                                 = 0x28, 0x36
	opI32, opI64, opLess, opAdd, opMul              = 0x41, 0x42, 0x49, 0x6a, 0x6c
	opAnd, opShl                                    = 0x71, 0x74
	typeI32, typeI64, typeFunc, noResult            = 0x7f, 0x7e, 0x60, 0x40
	loads                                      uint = 1000 // loads of chase in one turn of its loop
)

// empty is a guest that does nothing.
func empty() []byte { return module(pages, nil, opI64, 0) }

// endless is a guest that never stops.
func endless() []byte { return module(pages, nil, opLoop, noResult, opBr, 0, opEnd, opI64, 0) }

// chase is a guest that follows a cycle of pointers through 32 MiB for ever, 1,000 loads in a turn
// of its loop: each load waits for the one before it, and misses the caches. Its start function
// builds the cycle with a linear congruential generator of full period.
func chase() []byte {
	number := func(n int64) []byte { return append([]byte{opI32}, sleb(n)...) }
	line := func(index ...byte) []byte { // address of a line
		return slices.Concat(number(chaseBase), index, number(6), []byte{opShl, opAdd})
	}
	next := slices.Concat([]byte{opGet, 0}, number(1664525), []byte{opMul}, number(1013904223), []byte{opAdd}, number(chaseLines-1), []byte{opAnd})
	start := slices.Concat(
		[]byte{opLoop, noResult}, line(opGet, 0), line(next...), []byte{opStore, 2, 0},
		[]byte{opGet, 0}, number(1), []byte{opAdd, opTee, 0}, number(chaseLines), []byte{opLess, opBrIf, 0, opEnd})
	handle := slices.Concat(
		number(chaseBase), []byte{opSet, 0, opLoop, noResult, opGet, 0}, slices.Repeat([]byte{opLoad, 2, 0}, int(loads)),
		[]byte{opSet, 0, opBr, 0, opEnd, opI64, 0})
	return module(pages+chaseLines*64>>16, start, handle...)
}

// toucher is a guest that writes once to each page of the 60 MiB behind its input, and then traps:
// the next delta gets an instance with untouched memory. Each of its writes waits for the operating
// system.
func toucher() []byte {
	const page, perTurn, turns = 1 << 12, 100, 60 << 20 >> 12 / 100
	number := func(n int64) []byte { return append([]byte{opI32}, sleb(n)...) }
	handle := slices.Concat(number(chaseBase), []byte{opSet, 0, opLoop, noResult})
	for i := range uint64(perTurn) {
		handle = slices.Concat(handle, []byte{opGet, 0, opGet, 0, opStore, 2}, uleb(i*page))
	}
	handle = slices.Concat(handle,
		[]byte{opGet, 0}, number(perTurn*page), []byte{opAdd, opTee, 0}, number(chaseBase+turns*perTurn*page), []byte{opLess, opBrIf, 0, opEnd, opUnreachable})
	return module(pages+60<<20>>16, nil, handle...)
}

// module assembles a guest of the ABI rtr_v1 with the given number of memory pages, and the bodies
// of _initialize, with one local (nil: no such function), and of rtr_handle.
func module(pages uint64, start []byte, handle ...byte) []byte {
	types := [][]byte{{typeFunc, 0, 1, typeI32}, {typeFunc, 1, typeI32, 1, typeI32}, {typeFunc, 2, typeI32, typeI32, 1, typeI64}, {typeFunc, 0, 0}}
	funcs := [][]byte{{0}, {1}, {2}}
	exports := [][]byte{export("memory", 2, 0), export("rtr_abi_version", 0, 0), export("rtr_alloc", 0, 1), export("rtr_handle", 0, 2)}
	code := [][]byte{
		body(0, opI32, 1),
		body(0, append([]byte{opI32}, sleb(inputAt)...)...),
		body(0, handle...),
	}
	if start != nil {
		funcs, exports, code = append(funcs, []byte{3}), append(exports, export("_initialize", 0, 3)), append(code, body(1, start...))
	}
	return slices.Concat(
		[]byte("\x00asm\x01\x00\x00\x00"),
		section(1, types), section(3, funcs), section(5, [][]byte{append([]byte{0}, uleb(pages)...)}), section(7, exports), section(10, code),
	)
}

func section(id byte, items [][]byte) []byte {
	return append([]byte{id}, sized(append(uleb(uint64(len(items))), slices.Concat(items...)...))...)
}

func export(name string, kind, index byte) []byte { return append(sized([]byte(name)), kind, index) }

// body is a function with the given number of locals of type i32.
func body(locals byte, code ...byte) []byte {
	declared := []byte{0}
	if locals > 0 {
		declared = []byte{1, locals, typeI32}
	}
	return sized(slices.Concat(declared, code, []byte{opEnd}))
}

func sized(b []byte) []byte { return append(uleb(uint64(len(b))), b...) }

func uleb(n uint64) []byte { return binary.AppendUvarint(nil, n) }

func sleb(n int64) (b []byte) {
	for ; n < -64 || n > 63; n >>= 7 {
		b = append(b, byte(n)|0x80)
	}
	return append(b, byte(n)&0x7f)
}
