package wasm_test

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/test/must"
)

// amplifier returns a module with n additional elements of a kind.
func amplifier(kind string, n int) module {
	m := guest(constant(opI64, 0))
	own := m.sections()
	// appends to a section of guest, and replaces its count of one byte
	more := func(id byte, have int, items []byte) module {
		var old []byte
		if own[id] != nil {
			old = own[id][1:]
		}
		m.raw = map[byte][]byte{id: slices.Concat(uleb(have+n), old, items)}
		return m
	}
	repeat := func(item ...byte) []byte { return slices.Repeat(item, n) }
	switch kind {
	case "types":
		return more(1, len(m.funcs), repeat(0x60, 0, 0))
	case "parameters":
		n /= 1000
		return more(1, len(m.funcs), slices.Repeat(slices.Concat([]byte{0x60}, uleb(1000), slices.Repeat([]byte{i32}, 1000), []byte{0}), n))
	case "imports":
		return more(2, 0, repeat(1, 'a', 1, 'b', 0, 0))
	case "globals":
		return more(6, 0, repeat(i32, 0, opI32, 0, opEnd))
	case "exports":
		var items []byte
		for i := range n {
			items = append(items, slices.Concat(sized(fmt.Append(nil, i)), []byte{0, 0})...)
		}
		return more(7, 4, items)
	case "element segments":
		return more(9, 0, repeat(1, 0, 0))
	case "elements":
		m.raw = map[byte][]byte{9: slices.Concat([]byte{1, 1, 0}, uleb(n), make([]byte, n))}
	case "elements in expressions":
		m.raw = map[byte][]byte{9: slices.Concat([]byte{1, 5, 0x70}, uleb(n), repeat(0xd2, 0, opEnd))}
	case "data segments":
		m.raw = map[byte][]byte{11: slices.Concat(uleb(n), repeat(1, 0)), 12: uleb(n)}
	case "functions":
		m.raw = map[byte][]byte{
			3:  slices.Concat(uleb(3+n), own[3][1:], make([]byte, n)),
			10: slices.Concat(uleb(3+n), own[10][1:], repeat(sized(code(0, 0x00 /* unreachable */, opEnd))...)),
		}
	case "names": // of the function 0
		return m
	}
	return m
}

// names returns a custom section with n names of functions and of locals.
func names(n int) []byte {
	some := slices.Concat(uleb(n), slices.Repeat([]byte{0, 0}, n))
	return section(0, slices.Concat(sized([]byte("name")), section(1, some), section(2, slices.Concat([]byte{1, 0}, some))))
}

// TestSections: loading a module whose sections have many small elements allocates memory in
// proportion to the file. The test counts freed memory too, so the maximum in use is lower.
func TestSections(t *testing.T) {
	// Guarantee: guest-memory
	const mib = 1 << 20
	for kind, most := range map[string]int{
		"types": 9990, "parameters": 19_000, "globals": 20_000, "exports": 19_990, "element segments": 10_000, "elements": 200_000,
		"elements in expressions": 200_000, "data segments": 100_000, "functions": 20_000, "names": 1_000_000,
	} {
		t.Run(kind, func(t *testing.T) {
			open := func(n int) (size int, allocated uint64, err error) {
				m := amplifier(kind, n).assemble()
				if kind == "names" {
					m = append(m, names(n)...)
				}
				h := newHost()
				a := attack{bytes: m}
				config := a.write(t)
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				handler, err := h.tryOpen(t, config)
				runtime.ReadMemStats(&after)
				if err == nil {
					err = handler.Close(t.Context())
				}
				return len(a.bytes), after.TotalAlloc - before.TotalAlloc, err
			}
			size, allocated, err := open(most)
			must.Succeed(t, err)
			t.Logf("%d KiB of module: %d KiB, %.0f for each byte", size>>10, allocated>>10, float64(allocated)/float64(size))
			if allocated > uint64(64*mib+100*size) {
				t.Errorf("%d KiB of module take %d MiB", size>>10, allocated>>20)
			}
			if kind == "names" {
				return
			}
			size, allocated, err = open(6 * most)
			if err == nil || !strings.Contains(err.Error(), "more than the limit") {
				t.Errorf("%d KiB of module: got %v", size>>10, err)
			}
			if allocated > uint64(16*mib+20*size) {
				t.Errorf("%d KiB of module take %d MiB until they are refused", size>>10, allocated>>20)
			}
		})
	}
}

// TestUnknownImport: for a module that is invalid and imports an unknown function, the import is
// reported.
func TestUnknownImport(t *testing.T) {
	m := guest(constant(opI64, 0))
	m.imports = []function{{module: "env", name: "abort"}}
	m.funcs = append(m.funcs, function{body: code(opDrop)})
	if _, err := newHost().tryOpen(t, moduleYAML(t, m)); err == nil || !strings.Contains(err.Error(), "it imports what the router does not give: env.abort") {
		t.Errorf("got %v", err)
	}
}
