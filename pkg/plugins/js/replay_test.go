package js_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/callrecord"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/test/calls"
	"github.com/deltarouter/deltarouter/test/must"
)

// TestReplay: a call of a handler that depends on the clock, random numbers, kv, look-ups and the
// calls before is repeated exactly.
func TestReplay(t *testing.T) {
	// Guarantee: call-replay
	const body = `globalThis.n = (globalThis.n ?? 0) + 1
if (n < 3) return []
const value = ctx.kv.get("a")
throw new Error([n, Math.random(), Date.now(), value, ctx.count("nodes")].join())`
	conf := source(body, "allow: {kv: true, clock: true, random: true, lookup: [nodes]}")
	h := newHost()
	handler := h.open(t, conf)
	must.Succeed(t, h.env.KV.Commit([]plugins.KVWrite{{Key: "a", Value: []byte(`"stored"`)}}, 1<<20))
	for range 2 {
		_, err := handler.Handle(t.Context(), pods(t, 1))
		must.Succeed(t, err)
	}
	results, err := handler.Handle(t.Context(), pods(t, 2))
	must.Succeed(t, err)
	for i, r := range results {
		rec := calls.Record(t, r)
		if len(rec.Calls) != 3 || rec.Delta != i || !strings.Contains(rec.Error, "stored,1") {
			t.Errorf("%d calls, delta %d: %s", len(rec.Calls), rec.Delta, rec.Error)
		}
		o := calls.Replay(t, newHost().env, rec, func(env plugins.HandlerEnv) (plugins.Handler, error) { return (&host{env: env}).tryOpen(t, conf) })
		calls.Same(t, o, rec)
		if !slices.ContainsFunc(o.Functions, func(f callrecord.Function) bool { return f.Name == "env.host_call" }) {
			t.Errorf("the profile has no function of the host: %v", o.Functions[:min(5, len(o.Functions))])
		}
	}
}
