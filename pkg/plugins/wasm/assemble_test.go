package wasm_test

import (
	"encoding/binary"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/deltarouter/deltarouter/test/must"
)

// module is a WebAssembly module assembled by hand, for guests that no compiler would generate.
type module struct {
	imports []function // module, name, params and results only
	funcs   []function
	memory  []byte            // limits: flags, min, (max); nil: one page or more
	data    map[uint32][]byte // the initial memory
	hide    []string          // exports to leave out
	// sections that replace those of the fields above
	raw map[byte][]byte
}

type function struct {
	module, name    string
	params, results []byte
	locals          int // of i32, beside the parameters
	body            []byte
}

// Value types and some instructions.
const (
	i32 = 0x7f
	i64 = 0x7e

	opUnreachable = 0x00
	opNop         = 0x01
	opBlock       = 0x02
	opLoop        = 0x03
	opIf          = 0x04
	opEnd         = 0x0b
	opBr          = 0x0c
	opBrIf        = 0x0d
	opCall        = 0x10
	opDrop        = 0x1a
	opGet         = 0x20
	opSet         = 0x21
	opLoad        = 0x28
	opLoad8       = 0x2d
	opMemorySize  = 0x3f
	opMemoryGrow  = 0x40
	opI32         = 0x41
	opI64         = 0x42
	opEq          = 0x46
	opGeU         = 0x4f
	opAdd         = 0x6a
	opMul         = 0x6c
	empty         = 0x40 // block type
)

func uleb(n int) []byte { return binary.AppendUvarint(nil, uint64(n)) }

// sleb encodes a signed constant.
func sleb(n int64) (b []byte) {
	for {
		c := byte(n & 0x7f)
		n >>= 7
		if n == 0 && c&0x40 == 0 || n == -1 && c&0x40 != 0 {
			return append(b, c)
		}
		b = append(b, c|0x80)
	}
}

func constant(op byte, n int64) []byte { return append([]byte{op}, sleb(n)...) }

func code(parts ...any) (b []byte) {
	for _, p := range parts {
		switch p := p.(type) {
		case int:
			b = append(b, byte(p))
		case []byte:
			b = append(b, p...)
		}
	}
	return b
}

func vector[T any](items []T, encode func(T) []byte) []byte {
	b := uleb(len(items))
	for _, item := range items {
		b = append(b, encode(item)...)
	}
	return b
}

func sized(b []byte) []byte { return append(uleb(len(b)), b...) }

func section(id byte, content []byte) []byte { return append([]byte{id}, sized(content)...) }

// assemble returns the binary. Each function has its own type. Functions with a name are exported.
func (m module) assemble() []byte {
	b := []byte("\x00asm\x01\x00\x00\x00")
	sections := m.sections()
	for _, id := range []byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 10, 11} {
		if content := sections[id]; content != nil {
			b = append(b, section(id, content)...)
		}
	}
	return b
}

// sections returns the content of each section, by its id.
func (m module) sections() map[byte][]byte {
	memory := m.memory
	if memory == nil {
		memory = []byte{0, 1}
	}
	index := -1
	next := func() []byte { index++; return uleb(index) }
	sections := map[byte][]byte{
		1: vector(slices.Concat(m.imports, m.funcs), func(f function) []byte {
			return slices.Concat([]byte{0x60}, sized(f.params), sized(f.results))
		}),
		2: vector(m.imports, func(f function) []byte {
			return slices.Concat(sized([]byte(f.module)), sized([]byte(f.name)), []byte{0}, next())
		}),
		3:  vector(m.funcs, func(function) []byte { return next() }),
		5:  append([]byte{1}, memory...),
		7:  m.exports(),
		10: vector(m.funcs, function.code),
	}
	if m.data != nil {
		sections[11] = uleb(len(m.data))
		for at, bytes := range m.data {
			sections[11] = slices.Concat(sections[11], []byte{0}, constant(opI32, int64(at)), []byte{opEnd}, sized(bytes))
		}
	}
	maps.Copy(sections, m.raw)
	return sections
}

// code returns the function's entry in the code section.
func (f function) code() []byte {
	locals := []byte{0}
	if f.locals > 0 {
		locals = slices.Concat([]byte{1}, uleb(f.locals), []byte{i32})
	}
	return sized(slices.Concat(locals, f.body, []byte{opEnd}))
}

func (m module) exports() []byte {
	var exports [][]byte
	if !slices.Contains(m.hide, "memory") {
		exports = append(exports, slices.Concat(sized([]byte("memory")), []byte{2, 0}))
	}
	for i, f := range m.funcs {
		if f.name != "" && !slices.Contains(m.hide, f.name) {
			exports = append(exports, slices.Concat(sized([]byte(f.name)), []byte{0}, uleb(len(m.imports)+i)))
		}
	}
	return vector(exports, func(b []byte) []byte { return b })
}

// write writes the module to a file.
func (m module) write(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "guest.wasm")
	must.Succeed(t, os.WriteFile(path, m.assemble(), 0o600))
	return path
}

// inputAt is the address of the input buffer of guest.
const inputAt = 0x10000

// fewPages is the memory of a guest that gets small batches. Most of the time of a start is that in
// which the operating system provides the memory.
var fewPages = []byte{0, 3}

// guest returns a module whose rtr_handle has the given body, which returns the answer. It has one
// page for its data and 1 MiB for the input.
func guest(handle ...any) module {
	return module{
		memory: []byte{0, 17},
		funcs: []function{
			{name: "rtr_abi_version", results: []byte{i32}, body: constant(opI32, 1)},
			{name: "rtr_alloc", params: []byte{i32}, results: []byte{i32}, body: constant(opI32, inputAt)},
			{name: "rtr_handle", params: []byte{i32, i32}, results: []byte{i64}, locals: 1, body: code(handle...)},
		},
	}
}

// function returns a function of m to change.
func (m *module) function(name string) *function {
	for i := range m.funcs {
		if m.funcs[i].name == name {
			return &m.funcs[i]
		}
	}
	return nil
}

// answering returns a guest with a constant answer.
func answering(answer []byte) module {
	const at = 0x100
	m := guest(constant(opI64, at<<32|int64(len(answer))))
	m.data = map[uint32][]byte{at: answer}
	return m
}

// onDeleted returns a body of rtr_handle that runs code for each Deleted delta, and answers ok.
func onDeleted(what ...any) []byte {
	record := code(opGet, 0, opGet, 2, constant(opI32, 32), opMul, opAdd)
	return code(
		opBlock, empty, opLoop, empty,
		opGet, 2, opGet, 0, opLoad, 2, 8, opGeU, opBrIf, 1,
		record, opLoad8, 0, 24, constant(opI32, 3), opEq, opIf, empty, code(what...), opEnd,
		opGet, 2, constant(opI32, 1), opAdd, opSet, 2, opBr, 0,
		opEnd, opEnd, constant(opI64, 0),
	)
}

// record is a record of an answer.
type record struct {
	idx            uint32
	verdict, pad   byte
	events         uint16
	retry          uint32
	msgOff, msgLen uint32
	emOff, emLen   uint32
}

// encode returns an answer of records and the payload to which they refer.
func encode(payload string, records ...record) []byte {
	le := binary.LittleEndian
	b := le.AppendUint32(nil, uint32(len(records)))
	for _, r := range records {
		b = le.AppendUint32(b, r.idx)
		b = append(b, r.verdict, r.pad)
		b = le.AppendUint16(b, r.events)
		for _, n := range []uint32{r.retry, r.msgOff, r.msgLen, r.emOff, r.emLen} {
			b = le.AppendUint32(b, n)
		}
	}
	return append(b, payload...)
}

// events encodes the events at emit_off.
func events(envelopes ...string) string {
	var b []byte
	for _, e := range envelopes {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(e)))
		b = append(b, e...)
	}
	return string(b)
}
