package wasm_test

import (
	"testing"

	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// TestNothingOutside: WASI gives a guest no open folder, no file, no socket and no environment. The
// guest traps where it finds one.
func TestNothingOutside(t *testing.T) {
	const badf = 8
	var body []byte
	expect := func(fn byte, want int64, args ...int64) {
		body = append(body, opBlock, empty)
		for _, a := range args {
			body = append(body, constant(opI32, a)...)
		}
		body = code(body, opCall, int(fn), constant(opI32, want), opEq, opBrIf, 0, opUnreachable, opEnd)
	}
	for fd := int64(3); fd < 10; fd++ {
		expect(0, badf, fd, 0x100)
		expect(1, badf, fd, 0x200, 1, 0, 0x100)
	}
	expect(2, 0, 0x100, 0x104)
	body = append(body, opBlock, empty)
	body = code(body, constant(opI32, 0x100), opLoad, 2, 0, constant(opI32, 0), opEq, opBrIf, 0, opUnreachable, opEnd)

	m := guest(body, constant(opI64, 0))
	m.imports = []function{wasi("fd_prestat_get", i32, i32), wasi("sock_send", i32, i32, i32, i32, i32), wasi("environ_sizes_get", i32, i32)}
	t.Setenv("TOKEN", "secret")
	h := newHost()
	results, err := h.open(t, withRights(t, m, "")).Handle(t.Context(), first(t))
	if err != nil || results[0].Verdict != plugins.OK {
		t.Error(err, results)
	}
}
