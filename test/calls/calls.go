// Package calls repeats failed calls of handlers from their records.
package calls

import (
	"context"
	"testing"

	"github.com/deltarouter/deltarouter/internal/callrecord"
	"github.com/deltarouter/deltarouter/internal/kv"
	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/test/must"
)

// Record returns the record that a dead letter of the result would have, decoded again.
func Record(t testing.TB, r plugins.Result) *callrecord.Record {
	t.Helper()
	rec := callrecord.Of(r.Err)
	if rec == nil {
		t.Fatalf("verdict %s without a record: %v", r.Verdict, r.Err)
	}
	text, err := rec.Encode()
	must.Succeed(t, err)
	decoded, err := callrecord.Decode(text)
	must.Succeed(t, err)
	return decoded
}

// Replay repeats a recorded call with a handler that open opens in an environment without values.
func Replay(t testing.TB, env plugins.HandlerEnv, rec *callrecord.Record, open func(plugins.HandlerEnv) (plugins.Handler, error)) *callrecord.Outcome {
	t.Helper()
	env.KV, env.Cache, env.Replay = kv.New(timer.Real(), false), "", &callrecord.Replay{Record: rec}
	h, err := open(env)
	must.Succeed(t, err)
	defer func() { must.Report(t, h.Close(context.WithoutCancel(t.Context()))) }()
	o, err := h.(callrecord.Replayer).Replay(t.Context())
	must.Succeed(t, err)
	return o
}

// Same requires that a replay has the recorded result, and that its profile explains all fuel.
func Same(t testing.TB, o *callrecord.Outcome, rec *callrecord.Record) {
	t.Helper()
	if o.Left != "" || o.Error != rec.Error || o.Fuel != rec.Fuel || o.Module != rec.Module || o.Settings != rec.Settings {
		t.Errorf("the replay ended with\n%q and %d units of fuel (left: %q), and the call with\n%q and %d", o.Error, o.Fuel, o.Left, rec.Error, rec.Fuel)
	}
	sum := int64(0)
	for _, f := range o.Functions {
		sum += f.Fuel
	}
	if sum != o.Fuel {
		t.Errorf("the functions used %d units of %d: %v", sum, o.Fuel, o.Functions)
	}
}
