package wasm_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
	"github.com/deltarouter/deltarouter/test/must"
)

// step is a call of a host function with constants, and its expected result.
type step struct {
	name string
	want int64
	args []int64
}

func call(name string, want int64, args ...int64) step { return step{name, want, args} }

// hostFunctions are the functions of rtr_v1 as imports.
func hostFunctions() []function {
	f := func(name string, result byte, params ...byte) function {
		return function{module: "rtr_v1", name: name, params: params, results: []byte{result}}
	}
	return []function{
		f("log", i32, i32, i32, i32), f("config_get", i32, i32, i32, i32, i32), f("now_ns", i64), f("random", i32, i32, i32),
		f("emit", i32, i32, i32, i32), f("kv_get", i32, i32, i32, i32, i32), f("kv_set", i32, i32, i32, i32, i32, i64),
		f("kv_del", i32, i32, i32), f("lookup", i32, i32, i32, i32, i32), f("http", i32, i32, i32, i32, i32),
		f("field", i64, i32, i32, i32, i32),
	}
}

func named(name string) function {
	all := hostFunctions()
	return all[slices.IndexFunc(all, func(f function) bool { return f.name == name })]
}

// wrong is an invalid verdict. A script returns it, plus the number of the step, if a step has
// another result than expected.
const wrong = 7000

// steps compiles calls. If one returns another result, the guest answers with wrong and its number.
func (m *module) steps(all ...step) (body []byte) {
	for i, s := range all {
		f := named(s.name)
		at := slices.IndexFunc(m.imports, func(f function) bool { return f.name == s.name })
		if at < 0 {
			at = len(m.imports)
			m.imports = append(m.imports, f)
		}
		for k, a := range s.args {
			body = append(body, constant(map[byte]byte{i32: opI32, i64: opI64}[f.params[k]], a)...)
		}
		constOp, ne := byte(opI32), 0x47 /* i32.ne */
		if f.results[0] == i64 {
			constOp, ne = opI64, 0x52 /* i64.ne */
		}
		body = code(body, opCall, uleb(at), constant(constOp, s.want), ne, opIf, empty, constant(opI64, int64(wrong+i)), 0x0f /* return */, opEnd)
	}
	return body
}

// script returns a guest that calls these functions for each batch and then answers ok.
func script(data map[uint32]string, all ...step) module {
	return scriptThen(data, constant(opI64, 0), all...)
}

// scriptThen returns a script with another end.
func scriptThen(data map[uint32]string, end []byte, all ...step) module {
	m := guest()
	m.data = make(map[uint32][]byte)
	for at, text := range data {
		m.data[at] = []byte(text)
	}
	m.function("rtr_handle").body = append(m.steps(all...), end...)
	return m
}

// withRights returns the configuration of a module with grants.
func withRights(t *testing.T, m module, rest string) string {
	t.Helper()
	return fmt.Sprintf("{module: %q, %s}", m.write(t), rest)
}

// run passes deltas to the guest and requires success.
func run(t *testing.T, h plugins.Handler, batch []*event.Delta) []plugins.Result {
	t.Helper()
	results, err := h.Handle(t.Context(), batch)
	must.Succeed(t, err)
	for i, r := range results {
		if r.Verdict != plugins.OK {
			t.Errorf("delta %d: %s %v", i, r.Verdict, r.Err)
		}
	}
	return results
}

// first returns a batch of one delta.
func first(t *testing.T) []*event.Delta {
	t.Helper()
	return plugintest.Deltas(t)[:1]
}

func data(results []plugins.Result) (all []string) {
	for _, r := range results {
		for _, e := range r.Events {
			all = append(all, string(e.Data))
		}
	}
	return all
}
