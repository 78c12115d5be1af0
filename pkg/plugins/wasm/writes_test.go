package wasm_test

import (
	"fmt"
	"testing"

	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
	"github.com/deltarouter/deltarouter/test/must"
)

// TestWritesOfFailedDeltas: after a call with writes in which a delta failed, its writes are
// dropped, and the other deltas are passed again without that delta. A call of one delta is not
// repeated.
func TestWritesOfFailedDeltas(t *testing.T) {
	// Guarantee: call-atomic
	const place = 0x8000
	for _, tt := range []struct {
		name    string
		verdict byte
		deltas  int
		want    string // verdicts, and the keys that were written
	}{
		{"fail beside ok", 3, 2, "fail ok [key]"},
		{"retry beside ok", 1, 2, "retry ok [key]"},
		{"drop beside ok", 2, 2, "drop ok [other]"},
		{"fail alone", 3, 1, "fail []"},
		{"retry alone", 1, 1, "retry []"},
		{"drop alone", 2, 1, "drop [key]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			// The first delta has the verdict. The guest writes other if it has two deltas, and else key.
			answer := encode("", record{idx: 0, verdict: tt.verdict})
			m := scriptThen(kvData(), nil)
			m.data[place] = answer
			end := constant(opI64, place<<32|int64(len(answer)))
			alone := end
			if tt.deltas > 1 {
				alone = constant(opI64, 0)
			}
			set := func(key, size int64) []byte {
				return m.steps(call("kv_set", 0, key, size, atValue, int64(len(value)), 0))
			}
			m.function("rtr_handle").body = code(opGet, 0, opLoad, 2, 8, constant(opI32, 2), opEq, opIf, empty, set(atOther, 5), end, 0x0f /* return */, opEnd, set(atKey, 3), alone)
			h := newHost()
			results, err := h.open(t, withRights(t, m, "allow: {kv: true}")).Handle(t.Context(), plugintest.Deltas(t)[:tt.deltas])
			must.Succeed(t, err)
			keys := []string{}
			for _, key := range []string{"key", "other"} {
				if _, ok := h.env.KV.Get(key); ok {
					keys = append(keys, key)
				}
			}
			if got := fmt.Sprint(verdicts(results), " ", keys); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}
