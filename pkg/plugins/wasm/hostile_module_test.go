package wasm_test

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/test/must"
)

// TestHostileModules: for a file that is not a usable module, the start returns the reason.
func TestHostileModules(t *testing.T) {
	// Guarantee: hostile-module
	edit := func(f func(m *module)) module {
		m := guest(constant(opI64, 0))
		f(&m)
		return m
	}
	raw := func(id byte, content ...[]byte) module {
		return edit(func(m *module) { m.raw = map[byte][]byte{id: slices.Concat(content...)} })
	}
	imported := func(kind ...byte) module {
		return raw(2, []byte{1}, sized([]byte("env")), sized([]byte("it")), kind)
	}
	imports := func(n int, name string) module {
		return edit(func(m *module) {
			for i := range n {
				m.imports = append(m.imports, function{module: "env", name: fmt.Sprint(name, i)})
			}
		})
	}
	exports := func(names ...string) module {
		return edit(func(m *module) {
			for _, name := range names {
				m.funcs = append(m.funcs, function{name: name})
			}
		})
	}
	huge := func(body []byte, locals int) module {
		return edit(func(m *module) { m.funcs = append(m.funcs, function{body: body, locals: locals}) })
	}
	big := strings.Repeat("x", 1<<20)
	memoryFunction := exports("memory")
	memoryFunction.hide = nil
	memoryFunction.raw = map[byte][]byte{7: onlyFunctions(memoryFunction)}
	memoryOnly := imported(2, 0, 1)
	memoryOnly.raw[5] = nil
	bodies := guest(constant(opI64, 0)).sections()[10]
	sufferAll(t, []attack{
		{name: "a function that there is not", guest: imports(1, "abort"), load: true, want: "does not give: env.abort0"},
		{name: "30 functions that there are not", guest: imports(30, "f"), load: true, want: "env.f19, and 10 more"},
		{name: "a function with a huge name", guest: imports(1, big), load: true, want: "x…"},
		{name: "a function with a name that is no text", guest: imports(1, "\x1b[2J\x00"), load: true, want: "env.\uFFFD[2J\uFFFD0"},
		{name: "an imported memory and one of its own", guest: imported(2, 0, 1), load: true, want: "multi-memory"},
		{name: "an imported memory", guest: memoryOnly, load: true, want: "env.it (a memory)"},
		{name: "an imported table", guest: imported(1, 0x70, 0, 1), load: true, want: "env.it (a table)"},
		{name: "an imported global", guest: imported(3, i32, 0), load: true, want: "env.it (a global)"},
		{name: "two memories", guest: raw(5, []byte{2, 0, 1, 0, 1}), load: true, want: "multi-memory"},
		{name: "a memory of 64 bits", guest: raw(5, []byte{1, 4, 1}), load: true, want: "memory64"},
		{name: "a shared memory", guest: raw(5, []byte{1, 3, 1, 1}), load: true, want: "threads"},
		{name: "too much memory at once", guest: raw(5, []byte{1, 0}, uleb(65536)), limits: "memory: 64Mi", load: true, want: "cannot be compiled"},
		{name: "too large a table", guest: raw(4, []byte{1, 0x70, 0}, uleb(math.MaxUint32)), load: true, want: "cannot be compiled"},
		{name: "data out of bounds", guest: edit(func(m *module) { m.data = map[uint32][]byte{17<<16 - 2: []byte("abc")} }), load: true, want: "data"},
		{name: "data at a negative address", guest: edit(func(m *module) { m.data = map[uint32][]byte{math.MaxUint32: []byte("abc")} }), load: true, want: "data"},
		{name: "elements out of bounds", guest: edit(func(m *module) {
			m.raw = map[byte][]byte{4: {1, 0x70, 0, 1}, 9: slices.Concat([]byte{1, 0}, constant(opI32, 1), []byte{opEnd, 1, 2})}
		}), want: ""}, // there is no entry then
		{name: "elements of no table", guest: raw(9, []byte{1, 0}, constant(opI32, 0), []byte{opEnd, 1, 2}), load: true, want: "cannot be compiled"},
		{name: "a start function that there is not", guest: raw(8, uleb(99)), load: true, want: "function 99 does not exist"},
		{name: "a start function with parameters", guest: raw(8, uleb(1)), load: true, want: "cannot be compiled"},
		{name: "an export twice", guest: exports("again", "again"), load: true, want: `export "again" twice`},
		{name: "a huge export twice", guest: exports(big, big), load: true, want: `twice`},
		{name: "memory is a function", guest: memoryFunction, load: true, want: "does not export memory"},
		{name: "more bodies than functions", guest: raw(10, append(uleb(4), bodies[1:]...)), load: true, want: "cannot be compiled"},
		{name: "as many bodies as can be", guest: raw(10, uleb(math.MaxUint32)), load: true, want: "cannot be compiled"},
		{name: "a body that is longer than the file", guest: raw(10, uleb(3), uleb(1<<30)), load: true, want: "cannot be compiled"},
		{name: "a wrong type", guest: huge(code(opI64, 0, opSet, 0), 1), load: true, want: "cannot be compiled"},
		{name: "an endless loop of labels", guest: huge(code(opBr, 99), 0), load: true, want: "label"},
		{name: "50,000 locals", guest: huge(nil, 50_000), load: true, want: "20000"},
		{name: "4 Gi locals", guest: huge(nil, math.MaxUint32), load: true, want: "locals"},
		{name: "1 M nops", guest: huge(nops(1_000_000), 0), want: ""},
		{name: "4 M nops", guest: huge(nops(4<<20), 0), load: true, want: "cannot be compiled"},
		{name: "3,000 blocks in each other", guest: huge(slices.Concat(bytes.Repeat([]byte{opBlock, empty}, 3000), bytes.Repeat([]byte{opEnd}, 3000)), 0), want: ""},
		{name: "blocks without end", guest: huge(bytes.Repeat([]byte{opBlock, empty}, 10_000), 0), load: true, want: "cannot be compiled"},
		{name: "a br_table of 10,000", guest: huge(code(opGet, uleb(0), 0x0e, uleb(10_000), make([]byte, 10_001)), 1), want: ""},
		{name: "a br_table of 100,000", guest: huge(code(opGet, uleb(0), 0x0e, uleb(100_000), make([]byte, 100_001)), 1), load: true, want: "too large to compile"},
		{name: "100,000 blocks", guest: huge(bytes.Repeat(code(opGet, 0, opIf, empty, opEnd), 100_000), 1), load: true, want: "too large to compile"},
		{name: "many functions with many blocks", guest: edit(func(m *module) {
			body := bytes.Repeat(code(opGet, 0, opIf, empty, opEnd), 11_000)
			for range 20 {
				m.funcs = append(m.funcs, function{body: body, locals: 1})
			}
		}), load: true, want: "together have too many blocks"},
		{name: "a br_table that is longer than the file", guest: huge(code(opGet, uleb(0), 0x0e, uleb(math.MaxUint32)), 1), load: true, want: "cannot be compiled"},
		{name: "2,000 functions", guest: edit(func(m *module) { m.funcs = append(m.funcs, make([]function, 2000)...) }), want: ""},
		{name: "200,000 functions", guest: edit(func(m *module) { m.funcs = append(m.funcs, make([]function, 200_000)...) }), load: true, want: "200003 types, more than the limit of 10000"},
		{name: "tail calls", guest: huge(code(0x12, 0), 0), load: true, want: "tail-call"},
		{name: "atomics", guest: huge(code(0xfe, 3, 0), 0), load: true, want: "threads"},
	})
}

// onlyFunctions returns an export section without the memory.
func onlyFunctions(m module) []byte {
	m.hide = []string{"memory"}
	m.funcs = slices.Clone(m.funcs)
	return m.exports()
}

// TestHostileFiles: files that were truncated or changed do no harm.
func TestHostileFiles(t *testing.T) {
	// Guarantee: hostile-module
	whole := guest(onDeleted(opUnreachable)).assemble()
	attacks := []attack{
		{name: "nothing", bytes: []byte{}, load: true, want: "not a WebAssembly module"},
		{name: "wrong magic", bytes: append([]byte("\x00asn"), whole[4:]...), load: true, want: "not a WebAssembly module"},
		{name: "another version", bytes: append([]byte("\x00asm\x02\x00\x00\x00"), whole[8:]...), load: true, want: "cannot be compiled"},
		{name: "a component", bytes: append([]byte("\x00asm\x0d\x00\x01\x00"), whole[8:]...), load: true, want: "wasm32-wasip1"},
		{name: "an archive", bytes: []byte("PK\x03\x04 and more"), load: true, want: "not a WebAssembly module"},
		{name: "text behind it", bytes: append(slices.Clone(whole), "text"...), load: true, want: "cannot be compiled"},
		{name: "twice", bytes: slices.Concat(whole, whole[8:]), load: true, want: "cannot be compiled"},
	}
	for n := 4; n < len(whole); n += 5 {
		attacks = append(attacks, attack{name: fmt.Sprintf("cut at %d", n), bytes: whole[:n], load: true})
	}
	sufferAll(t, attacks)

	t.Run("40 MB", func(t *testing.T) {
		h := newHost()
		path := module{}.write(t)
		must.Succeed(t, os.Truncate(path, 40<<20))
		if _, err := h.tryOpen(t, fmt.Sprintf("module: %q", path)); err == nil || !strings.Contains(err.Error(), "raise limits.module") {
			t.Errorf("got %v", err)
		}
		checkGone(t, h)
	})
}

// TestHostileNames: a function name of a megabyte, which occurs in the trace of each trap many
// times, does no harm.
func TestHostileNames(t *testing.T) {
	recursion := guest(opGet, 0, opGet, 1, opCall, 2)
	name := strings.Repeat("f", 1<<20)
	names := slices.Concat(uleb(1), uleb(2), sized([]byte(name)))
	custom := section(0, slices.Concat(sized([]byte("name")), section(1, names)))
	sufferAll(t, []attack{
		{name: "a huge name", bytes: append(recursion.assemble(), custom...), limits: "fuel: 500M", want: "nested too deeply"},
		{name: "no names", bytes: append(recursion.assemble(), section(0, slices.Concat(sized([]byte("name")), []byte{1, 0xff}))...), limits: "fuel: 500M", want: "nested too deeply"},
	})
}
