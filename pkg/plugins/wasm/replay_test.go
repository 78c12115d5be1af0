package wasm_test

import (
	"bytes"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltarouter/deltarouter/internal/callrecord"
	"github.com/deltarouter/deltarouter/internal/kv"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
	"github.com/deltarouter/deltarouter/test/calls"
	"github.com/deltarouter/deltarouter/test/must"
)

// allAnswers grants everything of which a record has the answers.
const allAnswers = `allow: {kv: true, lookup: [pods], clock: true, random: true, http: [{host: "example.com:80", scheme: http}]}`

// dependent returns a guest whose effects depend on all that the host may answer: it logs a value
// of kv, the answer to a look-up and a response, uses fuel by a clock and a random number, and then
// traps.
func dependent() module {
	const lookup, request = `{"list":"pods"}`, `{"url":"http://example.com/"}`
	const atLookup, atRequest, atNumbers = 0x200, 0x300, 0x400
	logged := func(at, function int64, args ...int64) []byte {
		b := code(constant(opI32, 1), constant(opI32, at))
		for _, a := range args {
			b = append(b, constant(opI32, a)...)
		}
		return code(b, opCall, int(function), opCall, 5, opDrop)
	}
	m := guest(
		logged(0x1000, 0, 0x100, 3, 0x1000, 0x1000),
		logged(0x2000, 1, atLookup, int64(len(lookup)), 0x2000, 0x1000),
		logged(0x3000, 4, atRequest, int64(len(request)), 0x3000, 0x1000),
		constant(opI32, atNumbers), opCall, 2, 0x37, 3, 0, /* i64.store */
		constant(opI32, atNumbers+8), constant(opI32, 8), opCall, 3, opDrop,
		// as many turns as the lower bits of both
		constant(opI32, atNumbers), opLoad, 2, 0, constant(opI32, atNumbers), opLoad, 2, 8, 0x73 /* i32.xor */, constant(opI32, 0xffff), 0x71 /* i32.and */, opSet, 2,
		opBlock, empty, opLoop, empty,
		opGet, 2, 0x45 /* i32.eqz */, opBrIf, 1, opGet, 2, constant(opI32, -1), opAdd, opSet, 2, opBr, 0,
		opEnd, opEnd,
		constant(opI32, 0x100), constant(opI32, 3), constant(opI32, 0x1000), constant(opI32, 8), constant(opI64, 0), opCall, 6, opDrop,
		constant(opI32, 0x100), constant(opI32, 3), opCall, 7, opDrop,
		opUnreachable,
	)
	for _, name := range []string{"kv_get", "lookup", "now_ns", "random", "http", "log", "kv_set", "kv_del"} {
		m.imports = append(m.imports, named(name))
	}
	m.data = map[uint32][]byte{0x100: []byte("key"), atLookup: []byte(lookup), atRequest: []byte(request)}
	return m
}

// answer sets what the host answers to dependent.
func (h *host) answer(t *testing.T) {
	t.Helper()
	must.Succeed(t, h.env.KV.Commit([]plugins.KVWrite{{Key: "key", Value: []byte("a stored value")}}, 1<<20))
	h.env.Lookup = two(t)
	h.env.HTTP = roundTrip(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("a response"))}, nil
	})
}

// once passes deltas to a handler.
func once(t *testing.T, h plugins.Handler, batch []*event.Delta) []plugins.Result {
	t.Helper()
	results, err := h.Handle(t.Context(), batch)
	must.Succeed(t, err)
	return results
}

// replay repeats a recorded call on another host, which has no answers of its own.
func replay(t *testing.T, config string, rec *callrecord.Record) (*callrecord.Outcome, *host) {
	t.Helper()
	h := newHost()
	return calls.Replay(t, h.env, rec, func(env plugins.HandlerEnv) (plugins.Handler, error) {
		h.env = env
		return h.tryOpen(t, config)
	}), h
}

// saying returns the lines of a log that guests wrote, without their times.
func saying(h *host) (lines []string) {
	for line := range strings.Lines(h.ofGuests()) {
		if _, after, ok := strings.Cut(line, `msg="handler says"`); ok {
			lines = append(lines, after)
		}
	}
	return lines
}

// TestReplay: a call that depends on everything that the host answers is repeated exactly.
func TestReplay(t *testing.T) {
	// Guarantee: call-replay
	h, conf := newHost(), withRights(t, dependent(), allAnswers)
	h.answer(t)
	results := once(t, h.open(t, conf), plugintest.Deltas(t)[:1])
	rec := calls.Record(t, results[0])
	o, again := replay(t, conf, rec)
	calls.Same(t, o, rec)
	if o.Verdict != "fail" || !strings.Contains(o.Error, "unreachable") || !slices.Equal(o.Place, []string{"rtr_handle"}) {
		t.Errorf("verdict %s, error %q in %v", o.Verdict, o.Error, o.Place)
	}
	said := saying(h)
	if text := strings.Join(said, ""); len(said) != 3 || !strings.Contains(text, "a stored value") || !strings.Contains(text, "a response") || !strings.Contains(text, "objects") {
		t.Errorf("the guest did not get the answers:\n%s", text)
	}
	if got := saying(again); !slices.Equal(got, said) {
		t.Errorf("the guest says\n%v\nand said\n%v", got, said)
	}
	if i := slices.IndexFunc(o.Functions, func(f callrecord.Function) bool { return f.Name == "rtr_v1.http" && f.Calls == 1 }); i < 0 {
		t.Errorf("the profile has no call of http: %v", o.Functions)
	}
}

// counting returns a guest that counts its calls in its memory, uses fuel by the number of calls,
// and traps at a deleted delta.
func counting() module {
	const at = 0x500
	body := onDeleted(opUnreachable)
	return guest(
		constant(opI32, at), constant(opI32, at), opLoad, 2, 0, constant(opI32, 1), opAdd, 0x36, 2, 0, /* i32.store */
		constant(opI32, at), opLoad, 2, 0, opSet, 2,
		opBlock, empty, opLoop, empty,
		opGet, 2, 0x45 /* i32.eqz */, opBrIf, 1, opGet, 2, constant(opI32, -1), opAdd, opSet, 2, opBr, 0,
		opEnd, opEnd,
		body,
	)
}

// TestReplayHistory: the record has the earlier calls of the guest, so that a guest with a state is
// repeated exactly, as long as they are few. The delta that failed is the one that was tried alone.
func TestReplayHistory(t *testing.T) {
	deltas := plugintest.Deltas(t)
	h, conf := newHost(), moduleYAML(t, counting())
	handler := h.open(t, conf)
	for range 3 {
		run(t, handler, deltas[:2])
	}
	batch := deltas[2:5]
	results := once(t, handler, batch)
	if got := verdicts(results); got != "ok fail ok" {
		t.Fatalf("got %s", got)
	}
	rec := calls.Record(t, results[1])
	if n := len(rec.Calls); rec.Earlier != 0 || n < 2 || rec.Delta != 0 || len(rec.Calls[n-1].Batch) != 1 {
		t.Errorf("%d calls after %d others, delta %d failed", n, rec.Earlier, rec.Delta)
	}
	o, _ := replay(t, conf, rec)
	calls.Same(t, o, rec)
	short := *rec
	short.Calls = rec.Calls[len(rec.Calls)-1:]
	if o, _ := replay(t, conf, &short); o.Fuel == rec.Fuel {
		t.Error("the earlier calls have no effect, so this test shows nothing")
	}
}

// TestReplayLongHistory: the record of a guest with many calls has the last one only, and says so.
func TestReplayLongHistory(t *testing.T) {
	handler := newHost().open(t, moduleYAML(t, counting()))
	deltas := plugintest.Deltas(t)
	large := &event.Delta{Source: "pods", Op: event.Added, New: plugintest.Pod(t, "large", 1, callrecord.MaxHistory/4)}
	for range 5 {
		run(t, handler, []*event.Delta{large})
	}
	rec := calls.Record(t, once(t, handler, deltas[3:4])[0])
	if len(rec.Calls) != 1 || rec.Earlier != 5 || rec.Before != 5 {
		t.Errorf("%d calls after %d others with %d deltas", len(rec.Calls), rec.Earlier, rec.Before)
	}
}

// TestReplayNumbers: a guest gets the number of each delta as recorded, also if the record does not
// have the deltas before.
func TestReplayNumbers(t *testing.T) {
	// Guarantee: call-replay
	conf := moduleYAML(t, guest(
		opGet, 0, opLoad, 2, 16, opSet, 2,
		opBlock, empty, opLoop, empty,
		opGet, 2, 0x45 /* i32.eqz */, opBrIf, 1, opGet, 2, constant(opI32, -1), opAdd, opSet, 2, opBr, 0,
		opEnd, opEnd,
		onDeleted(opUnreachable),
	))
	handler := newHost().open(t, conf)
	large := &event.Delta{Source: "pods", Op: event.Added, New: plugintest.Pod(t, "large", 1, callrecord.MaxHistory/2)}
	run(t, handler, []*event.Delta{large})
	run(t, handler, []*event.Delta{large, large, large})
	run(t, handler, []*event.Delta{large})
	rec := calls.Record(t, once(t, handler, plugintest.Deltas(t)[3:4])[0])
	if rec.Earlier != 3 || rec.Before != 5 {
		t.Errorf("%d calls with %d deltas before", rec.Earlier, rec.Before)
	}
	rec.Fuel++ // of rtr_alloc, which an earlier call has called
	o, _ := replay(t, conf, rec)
	calls.Same(t, o, rec)
	rec.Before = 0
	if o, _ := replay(t, conf, rec); o.Fuel == rec.Fuel {
		t.Error("the number has no effect, so this test shows nothing")
	}
}

// failing returns a guest that reads a value of kv a number of times, and then fails each delta of
// a batch of n.
func failing(n, reads int) module {
	records := make([]record, n)
	for i := range records {
		records[i] = record{idx: uint32(i), verdict: 3}
	}
	answer := encode("", records...)
	var body []byte
	for range reads {
		body = code(body, constant(opI32, 0x100), constant(opI32, 3), constant(opI32, 0), constant(opI32, 0), opCall, 0, opDrop)
	}
	m := guest(body, constant(opI64, 0x200<<32|int64(len(answer))))
	m.imports = []function{named("kv_get")}
	m.data = map[uint32][]byte{0x100: []byte("key"), 0x200: answer}
	return m
}

// TestReplayOfVerdicts: a call in which several deltas failed is repeated with all of them. Their
// records are of one call.
func TestReplayOfVerdicts(t *testing.T) {
	h, conf := newHost(), withRights(t, failing(3, 1), "allow: {kv: true}")
	results := once(t, h.open(t, conf), plugintest.Deltas(t)[:3])
	if first, last := callrecord.Of(results[0].Err), callrecord.Of(results[2].Err); !first.SameCall(last) {
		t.Error("the records are of different calls")
	}
	for i, r := range results {
		rec := calls.Record(t, r)
		if len(rec.Calls) != 1 || len(rec.Calls[0].Batch) != 3 || rec.Delta != i {
			t.Fatalf("delta %d of %v", rec.Delta, rec.Calls)
		}
		o, _ := replay(t, conf, rec)
		calls.Same(t, o, rec)
	}
}

// TestRecordBounds: the answers and deltas of a record are bounded.
func TestRecordBounds(t *testing.T) {
	// Guarantee: call-replay
	value := bytes.Repeat([]byte{0xff}, callrecord.MaxSize/4)
	conf := withRights(t, failing(3, 10), "allow: {kv: true}")
	open := func() plugins.Handler {
		h := newHost()
		must.Succeed(t, h.env.KV.Commit([]plugins.KVWrite{{Key: "key", Value: value}}, 1<<20))
		return h.open(t, conf)
	}
	t.Run("answers", func(t *testing.T) {
		rec := calls.Record(t, once(t, open(), plugintest.Deltas(t)[:3])[0])
		if n := len(rec.Calls[0].Answers); n != 3 || !rec.Incomplete {
			t.Errorf("%d answers, incomplete: %t", n, rec.Incomplete)
		}
		if o, _ := replay(t, conf, rec); o.Left != "the record ends before a call of kv_get, because the answers of the call exceed 256 KiB" {
			t.Error(o.Left)
		}
	})
	t.Run("records", func(t *testing.T) {
		const fitting = callrecord.MaxBatch / (callrecord.MaxSize / 4)
		var batch []*event.Delta
		for i := range 2 * fitting {
			batch = append(batch, &event.Delta{Source: "pods", Op: event.Added, New: plugintest.Pod(t, "small", i, 1)})
		}
		single := withRights(t, failing(1, 1), "allow: {kv: true}, limits: {batch: 1}")
		h := newHost()
		must.Succeed(t, h.env.KV.Commit([]plugins.KVWrite{{Key: "key", Value: value}}, 1<<20))
		handler := h.open(t, single)
		for range 2 { // each batch has its own room
			n := 0
			for _, r := range once(t, handler, batch) {
				if callrecord.Of(r.Err) != nil {
					n++
				}
			}
			if n < fitting*3/4 || n > fitting {
				t.Errorf("%d records in a batch, want about %d", n, fitting)
			}
		}
	})
	t.Run("deltas", func(t *testing.T) {
		var batch []*event.Delta
		for i := range 3 {
			batch = append(batch, &event.Delta{Source: "pods", Op: event.Added, New: plugintest.Pod(t, "large", i, callrecord.MaxSize/2)})
		}
		rec := calls.Record(t, once(t, open(), batch)[1])
		if len(rec.Calls) != 1 || len(rec.Calls[0].Batch) != 1 || rec.Omitted != 2 || rec.Calls[0].Batch[0].Object().ResourceVersion() != "1" {
			t.Errorf("%d deltas are omitted: %v", rec.Omitted, rec.Calls)
		}
	})
	t.Run("a delta", func(t *testing.T) {
		batch := []*event.Delta{{Source: "pods", Op: event.Added, New: plugintest.Pod(t, "large", 1, callrecord.MaxSize)}}
		conf = withRights(t, failing(1, 0), "allow: {kv: true}")
		if rec := calls.Record(t, once(t, open(), batch)[0]); rec.Calls != nil || !rec.Incomplete {
			t.Errorf("%d calls, incomplete: %t", len(rec.Calls), rec.Incomplete)
		}
	})
}

// TestNoRecord: there is no record if a route gives Secrets to the handler, so that the disk gets
// no values which another route has made of them, and none of a call that has looked a Secret up.
func TestNoRecord(t *testing.T) {
	// Guarantee: secrets-off-disk
	conf := withRights(t, failing(1, 1), "allow: {kv: true}")
	h := newHost()
	h.env.KV.(*kv.Store).Withhold()
	if r := once(t, h.open(t, conf), plugintest.Deltas(t)[:1])[0]; r.Verdict != plugins.Fail || callrecord.Of(r.Err) != nil {
		t.Errorf("verdict %s with a record, although the values are withheld", r.Verdict)
	}
	h = newHost()
	h.answer(t)
	found, err := event.ParseObject(&event.Resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "secrets"}}, `{"metadata":{"name":"s"}}`)
	must.Succeed(t, err)
	h.env.Lookup = &catalog{objects: []*event.Object{found}}
	if r := once(t, h.open(t, withRights(t, dependent(), allAnswers)), plugintest.Deltas(t)[:1])[0]; r.Verdict != plugins.Fail || callrecord.Of(r.Err) != nil {
		t.Errorf("verdict %s with a record of a Secret", r.Verdict)
	}
}

// TestReplayLeaves: a guest that asks for something else than recorded is ended.
func TestReplayLeaves(t *testing.T) {
	h, conf := newHost(), withRights(t, failing(1, 1), "allow: {kv: true}")
	rec := calls.Record(t, once(t, h.open(t, conf), plugintest.Deltas(t)[:1])[0])
	rec.Calls[0].Answers[0].Request++
	if o, _ := replay(t, conf, rec); o.Left != "the guest calls kv_get in another way than recorded" || o.Verdict != "fail" {
		t.Errorf("%s: %s", o.Verdict, o.Left)
	}
}

// TestReplayOutOfFuel: the answer for which the fuel did not suffice ends the replay in the same
// way.
func TestReplayOutOfFuel(t *testing.T) {
	h := newHost()
	h.answer(t)
	conf := withRights(t, dependent(), allAnswers+", limits: {fuel: 100k}")
	rec := calls.Record(t, once(t, h.open(t, conf), plugintest.Deltas(t)[:1])[0])
	if !strings.Contains(rec.Error, "out of fuel") {
		t.Fatal(rec.Error)
	}
	o, _ := replay(t, conf, rec)
	calls.Same(t, o, rec)
	if !slices.Equal(o.Place, []string{"rtr_v1.http", "rtr_handle"}) {
		t.Errorf("it ended in %q", o.Place)
	}
}

// TestReplayOfLoop: the functions of package meter are no part of a profile.
func TestReplayOfLoop(t *testing.T) {
	conf := moduleYAML(t, guest(opLoop, empty, opBr, 0, opEnd, constant(opI64, 0)))
	rec := calls.Record(t, once(t, newHost().open(t, conf), plugintest.Deltas(t)[:1])[0])
	o, _ := replay(t, conf, rec)
	calls.Same(t, o, rec)
	if len(o.Functions) != 2 || !slices.Equal(o.Place, []string{"rtr_handle"}) {
		t.Errorf("it ended in %q: %v", o.Place, o.Functions)
	}
}

// TestRecordCost: recording allocates nothing.
func TestRecordCost(t *testing.T) {
	r, batch, text := callrecord.Recorder{}, plugintest.Deltas(t), make([]byte, 100)
	call := func() {
		r.Begin(batch, callrecord.MaxHistory/10, callrecord.Clock{})
		r.Set(r.Add("kv_get", "key"), 0, 1, 0, text)
		r.Set(r.Add("random", ""), 0, 0, 0, r.Copied(text))
	}
	for range 100 {
		call()
	}
	if n := testing.AllocsPerRun(100, call); n != 0 {
		t.Errorf("%.0f allocations", n)
	}
}
