package extism_test

import (
	"testing"

	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/test/calls"
	"github.com/deltarouter/deltarouter/test/must"
)

// TestReplay: a call that traps is repeated exactly, after a call that has used kv.
func TestReplay(t *testing.T) {
	// Guarantee: call-replay
	const conf = "allow: {kv: true}"
	results, err := newHost(t).open(t, conf).Handle(t.Context(), deltas(t, "count", "log", "panic", "count"))
	must.Succeed(t, err)
	rec := calls.Record(t, results[2])
	o := calls.Replay(t, newHost(t).env, rec, func(env plugins.HandlerEnv) (plugins.Handler, error) { return (&host{env: env}).tryOpen(t, conf) })
	calls.Same(t, o, rec)
	if n := len(o.Place); n == 0 || o.Place[n-1] != "handle" {
		t.Errorf("it ended in %q", o.Place)
	}
}
