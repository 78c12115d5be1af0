package stdio_test

import (
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/callrecord"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/test/calls"
	"github.com/deltarouter/deltarouter/test/must"
)

// TestReplay: a call of a command is repeated exactly, after the calls before it: the random
// numbers of its start and its clock have an effect on its fuel.
func TestReplay(t *testing.T) {
	// Guarantee: call-replay
	conf := mode(t, "panic", "], allow: {clock: true, random: true}")
	results, err := newRouter(t).open(t, conf).Handle(t.Context(), pods(t, "a", "bad", "b"))
	must.Succeed(t, err)
	rec := calls.Record(t, results[1])
	if len(rec.Start) == 0 || len(rec.Calls) != 2 {
		t.Errorf("%d answers to the start, %d calls", len(rec.Start), len(rec.Calls))
	}
	o := calls.Replay(t, newRouter(t).env, rec, func(env plugins.HandlerEnv) (plugins.Handler, error) { return (&router{env: env}).tryOpen(t, conf) })
	calls.Same(t, o, rec)
	if n := len(o.Place); n == 0 || o.Place[0] != "wasi_snapshot_preview1.proc_exit" || o.Place[n-1] != "_start" {
		t.Errorf("it ended in %q", o.Place)
	}
	other := calls.Replay(t, newRouter(t).env, rec, func(env plugins.HandlerEnv) (plugins.Handler, error) {
		return (&router{env: env}).tryOpen(t, strings.Replace(conf, "args:", "env: {A: b}, args:", 1))
	})
	if other.Settings == rec.Settings {
		t.Error("another environment is not noticed")
	}
	rec.Start = nil
	r := newRouter(t)
	r.env.Replay = &callrecord.Replay{Record: rec}
	_, err = r.tryOpen(t, conf)
	must.Fail(t, err, "in another way than recorded")
}
