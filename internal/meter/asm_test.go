package meter_test

import (
	"encoding/binary"
	"slices"
)

// Instructions and types of modules that tests assemble by hand.
const (
	i32 = 0x7f
	i64 = 0x7e

	unreachable = 0x00
	nop         = 0x01
	block       = 0x02
	loop        = 0x03
	ifThen      = 0x04
	elseThen    = 0x05
	end         = 0x0b
	br          = 0x0c
	brIf        = 0x0d
	brTable     = 0x0e
	ret         = 0x0f
	call        = 0x10
	callInd     = 0x11
	drop        = 0x1a
	get         = 0x20
	set         = 0x21
	tee         = 0x22
	globalGet   = 0x23
	globalSet   = 0x24
	constI32    = 0x41
	constI64    = 0x42
	ltS         = 0x48
	add         = 0x6a
	sub         = 0x6b
	void        = 0x40
)

// fn is a function of a module. Its body has no final end instruction.
type fn struct {
	name            string // exported if not empty
	params, results []byte
	locals          []byte // groups, with their number; nil: none
	body            []byte
}

// mod is a module. Its first type is () → ().
type mod struct {
	imports [][]byte // one function each, without its type index, which is 0
	funcs   []fn
	tables  [][]byte
	memory  []byte
	globals [][]byte
	exports [][]byte
	start   int // index + 1
	elems   [][]byte
	data    [][]byte // passive or active; counted
	custom  []byte
	oneType bool // all functions have the type () → ()
}

func u(n int) []byte { return binary.AppendUvarint(nil, uint64(n)) }

func s(n int64) (b []byte) {
	for {
		c := byte(n & 0x7f)
		n >>= 7
		if n == 0 && c&0x40 == 0 || n == -1 && c&0x40 != 0 {
			return append(b, c)
		}
		b = append(b, c|0x80)
	}
}

// code joins instructions. Instructions of several bytes are byte slices.
func code(parts ...any) (b []byte) {
	for _, p := range parts {
		switch p := p.(type) {
		case int:
			b = append(b, byte(p))
		case []byte:
			b = append(b, p...)
		default:
			panic("code: neither byte nor bytes")
		}
	}
	return b
}

func num(n int64) []byte   { return code(constI32, s(n)) }
func num64(n int64) []byte { return code(constI64, s(n)) }

func sized(b []byte) []byte { return append(u(len(b)), b...) }

func vec(items [][]byte) []byte { return append(u(len(items)), slices.Concat(items...)...) }

func sec(id byte, content []byte) []byte { return append([]byte{id}, sized(content)...) }

func (m mod) assemble() []byte {
	types, index := [][]byte{{0x60, 0, 0}}, [][]byte{}
	var bodies [][]byte
	exports := slices.Clone(m.exports)
	imports := make([][]byte, len(m.imports))
	for i, im := range m.imports {
		imports[i] = append(slices.Clone(im), 0, 0)
	}
	for i, f := range m.funcs {
		if m.oneType {
			index = append(index, u(0))
		} else {
			index = append(index, u(len(types)))
			types = append(types, slices.Concat([]byte{0x60}, sized(f.params), sized(f.results)))
		}
		locals := f.locals
		if locals == nil {
			locals = []byte{0}
		}
		bodies = append(bodies, sized(slices.Concat(locals, f.body, []byte{end})))
		if f.name != "" {
			exports = append(exports, slices.Concat(sized([]byte(f.name)), []byte{0}, u(len(imports)+i)))
		}
	}
	b := []byte("\x00asm\x01\x00\x00\x00")
	add := func(id byte, items [][]byte) {
		if len(items) > 0 {
			b = append(b, sec(id, vec(items))...)
		}
	}
	add(1, types)
	add(2, imports)
	add(3, index)
	add(4, m.tables)
	if m.memory != nil {
		add(5, [][]byte{m.memory})
	}
	add(6, m.globals)
	add(7, exports)
	if m.start > 0 {
		b = append(b, sec(8, u(m.start-1))...)
	}
	add(9, m.elems)
	if len(m.data) > 0 {
		b = append(b, sec(12, u(len(m.data)))...)
	}
	add(10, bodies)
	add(11, m.data)
	if m.custom != nil {
		b = append(b, sec(0, m.custom)...)
	}
	return b
}

// fib consists of calls. Its own index is 0.
func fib() fn {
	return fn{
		name: "fib", params: []byte{i32}, results: []byte{i32},
		body: code(get, 0, num(2), ltS, ifThen, i32, get, 0, elseThen,
			get, 0, num(1), sub, call, 0, get, 0, num(2), sub, call, 0, add, end),
	}
}

// count counts down in the shortest possible loop.
func count() fn {
	return fn{name: "count", params: []byte{i32}, body: code(loop, void, get, 0, num(1), sub, tee, 0, brIf, 0, end)}
}

// scan sums the bytes of memory in a loop.
func scan() fn {
	return fn{
		name: "scan", params: []byte{i32}, results: []byte{i32}, locals: []byte{1, 1, i32},
		body: code(loop, void,
			get, 0, num(0xffff), 0x71 /* and */, 0x2d, 0, 0 /* load8_u */, get, 1, add, set, 1,
			get, 0, num(1), sub, tee, 0, brIf, 0, end, get, 1),
	}
}
