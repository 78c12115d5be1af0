package wasm_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
	"github.com/deltarouter/deltarouter/test/built"
	"github.com/deltarouter/deltarouter/test/effort"
	"github.com/deltarouter/deltarouter/test/must"
)

// one returns a delta of a pod with that name.
func one(t *testing.T, name string) []*event.Delta {
	t.Helper()
	return []*event.Delta{{Source: "pods", Op: event.Added, New: plugintest.Pod(t, name, 1, 10), Seen: time.Unix(1e9, 1)}}
}

// TestSDK runs a guest that uses all functions of the SDK.
func TestSDK(t *testing.T) {
	h := newHost()
	h.env.Workers = 1
	handler := h.open(t, fmt.Sprintf("{module: %q, config: {answer: {a: [1, x]}}, limits: {memory: 32Mi, fuel: 1G}}", built.Module(t, "testdata/guest")))
	// first, because later subtests exceed the limit of log lines
	t.Run("log", func(t *testing.T) { testSlog(t, h, handler) })
	tests := []struct {
		name    string
		verdict plugins.Verdict
		err     string   // part of it
		events  []string // their data
	}{
		{"nothing", plugins.OK, "", nil},
		{"config", plugins.OK, "", []string{`{"a":[1,"x"]}`}},
		{"raw", plugins.OK, "", []string{`{"raw":[1,"<"]}`, `{}`}},
		{"time", plugins.OK, "", []string{`["2001-09-09T01:46:40.000000001Z","1h0m0s"]`}},
		{"files", plugins.OK, "", []string{`{"args":["guest"],"env":[],"error":true}`}},
		{"parse", plugins.OK, "", nil},
		{"drop", plugins.Drop, "", nil},
		{"retry", plugins.Retry, `wasm "enrich": wrapped: later`, nil},
		{"fail", plugins.Fail, `wasm "enrich": as you wish`, nil},
		{"long", plugins.Fail, "xxxx", nil},
		{"panic", plugins.Fail, "the handler panicked, see the log", nil},
		{"invalid", plugins.Fail, "event data", nil},
		{"exit", plugins.Fail, "the guest exited with code 7", nil},
		{"fatal", plugins.Fail, "the guest ", nil}, // out of memory
		{"nothing", plugins.OK, "", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			results, err := handler.Handle(t.Context(), one(t, tt.name))
			must.Succeed(t, err)
			r := results[0]
			var got []string
			for _, e := range r.Events {
				got = append(got, string(e.Data))
			}
			if r.Verdict != tt.verdict || strings.Join(got, "\n") != strings.Join(tt.events, "\n") {
				t.Errorf("got %s %s", r.Verdict, got)
			}
			if tt.err != "" && !strings.Contains(fmt.Sprint(r.Err), tt.err) || len(fmt.Sprint(r.Err)) > 5000 {
				t.Errorf("got the error %v, want %q", r.Err, tt.err)
			}
			if r.Verdict == plugins.Retry && plugins.RetryAfter(r.Err) != 90*time.Second {
				t.Errorf("retry after %v", plugins.RetryAfter(r.Err))
			}
		})
	}
	for _, want := range []string{"handler panicked", "assignment to entry in nil map", "out of memory"} {
		if !strings.Contains(h.log.String(), want) {
			t.Errorf("the log does not say %q", want)
		}
	}
	t.Run("batch", func(t *testing.T) { testBatch(t, handler) })
	t.Run("every field", func(t *testing.T) { testEcho(t, handler) })
	t.Run("flat memory", func(t *testing.T) { testFlatMemory(t, h, handler) })
}

// testFlatMemory: the garbage collector of a Go guest runs, because the memory of all handled
// deltas is many times the limit.
func testFlatMemory(t *testing.T, h *host, handler plugins.Handler) {
	calls := effort.Rounds(5_000, 50_000, 50_000)
	delta := &event.Delta{Source: "pods", Op: event.Added, New: plugintest.Object(t, `{"metadata":{"name":"parse"},"a":[{"b":"c"},{}]}`)}
	batch, most := []*event.Delta{delta}, 0.0
	for i := range calls {
		results, err := handler.Handle(t.Context(), batch)
		if err != nil || results[0].Verdict != plugins.OK {
			t.Fatal(results, err)
		}
		if i%100 == 0 {
			most = max(most, h.memory())
		}
	}
	if most > 16<<20 {
		t.Errorf("during %d calls the guest had up to %v bytes of memory", calls, most)
	}
}

// testBatch mixes all verdicts in one call.
func testBatch(t *testing.T, handler plugins.Handler) {
	var batch []*event.Delta
	for _, name := range []string{"nothing", "fail", "raw", "drop", "panic", "retry", "nothing", "config"} {
		batch = append(batch, one(t, name)...)
	}
	results := handle(t, handler, batch)
	if got := verdicts(results); got != "ok fail ok drop fail retry ok ok" {
		t.Errorf("got %s", got)
	}
	if got := fmt.Sprint(len(results[2].Events), len(results[7].Events)); got != "2 1" {
		t.Errorf("got %s events", got)
	}
}

func testSlog(t *testing.T, h *host, handler plugins.Handler) {
	handle(t, handler, one(t, "log"))
	for _, want := range []string{
		`level=WARN msg="handler says" from=log text="something is odd n=1 g.k=\"v w\""`,
		`level=INFO msg="handler says" from=stdout text=printed`,
	} {
		if !strings.Contains(h.log.String(), want) {
			t.Errorf("the log has no %s:\n%s", want, h.log)
		}
	}
	if strings.Contains(h.log.String(), "quiet") {
		t.Error("debug is logged")
	}
}

// testEcho compares the delta in the handler with the original.
func testEcho(t *testing.T, handler plugins.Handler) {
	deltas := plugintest.Deltas(t)
	widgets := &event.Resource{Cluster: "c2", Kind: "Widget"}
	widgets.Group, widgets.Version, widgets.Resource = "example.com", "v1", "widgets"
	for i, d := range deltas {
		if d.New != nil {
			d.New = plugintest.Pod(t, "echo", i+5, 10)
		}
		if d.Old != nil {
			d.Old = plugintest.Pod(t, "echo", i+4, 10)
		}
	}
	widget, err := event.ParseObject(widgets, `{"metadata":{"name":"echo"}}`)
	must.Succeed(t, err)
	deltas = append(deltas, &event.Delta{Source: "w", Op: event.Added, New: widget, Seen: deltas[0].Seen})
	since := deltas[0].Seen.Add(-time.Hour)
	held := event.Delta{Source: "w", Op: event.Entered, New: plugintest.Pod(t, "echo", 40, 10), Seen: deltas[0].Seen, Since: since, Late: true, Suppressed: 1 << 40}
	limited, again, left := held, held, held
	limited.Op, limited.Since, limited.Late = event.Added, time.Time{}, false
	again.Repeat, again.Late, again.Suppressed = 2, false, 0
	left.Op, left.Suppressed, left.Late, left.Old, left.New = event.Left, 0, false, held.New, nil
	made := &event.Event{
		ID: "i-1", Type: "pod.broken", Source: "/clusters/c/sources/pods", Subject: "default/ü", Route: "broken-pods", Time: since, Data: []byte(`{"a":[1]}`),
	}
	fed, fedAgain := limited, held
	fed.Event, fed.Suppressed, fedAgain.Event = made, 0, made
	deltas = append(deltas, &held, &limited, &again, deltas[0], &left, &fed, &held, &fedAgain, deltas[0])
	expectEcho(t, handler, deltas)
	for i, d := range deltas {
		traced := *d
		traced.TraceParent = fmt.Sprintf("00-0102030405060708090a0b0c0d0e0f10-%016x-01", i)
		deltas[i] = &traced
	}
	expectEcho(t, handler, deltas)
	for i, d := range deltas {
		d.With = fmt.Appendf(nil, `{"n":%d}`, i) // and a trace
	}
	expectEcho(t, handler, deltas)
	for _, d := range deltas {
		d.TraceParent = ""
	}
	deltas[1].With = nil // as of a route without it
	expectEcho(t, handler, deltas)
}

func expectEcho(t *testing.T, handler plugins.Handler, deltas []*event.Delta) {
	t.Helper()
	for i, r := range handle(t, handler, deltas) {
		d, o := deltas[i], deltas[i].Object()
		if len(r.Events) != 1 {
			t.Fatalf("%s: %v", d, r)
		}
		old := ""
		if d.Old != nil {
			old = string(d.Old.JSON())
		}
		want, err := json.Marshal(map[string]any{
			"op": d.Op.String(), "source": d.Source, "cluster": o.Resource().Cluster, "resource": o.Resource().String(), "kind": o.Resource().Kind,
			"namespace": o.Key().Namespace, "name": o.Key().Name, "uid": o.UID(), "resourceVersion": o.ResourceVersion(),
			"object": json.RawMessage(o.JSON()), "oldObject": old,
			"initial": d.Initial, "stale": d.Stale, "redelivered": d.Redelivered, "seen": d.Seen,
			"since": d.Since, "late": d.Late, "repeat": d.Repeat > 0, "suppressed": d.Suppressed, "event": shownEvent(d.Event),
			"traceParent": d.TraceParent, "with": string(d.With),
		})
		must.Succeed(t, err)
		e := r.Events[0]
		if string(e.Data) != string(want) || e.Type != "echo" || e.Subject != d.String() {
			t.Errorf("got %s %s\n%s\nwant\n%s", e.Type, e.Subject, e.Data, want)
		}
	}
}

// TestSetup: the setup of a guest rejects its configuration.
func TestSetup(t *testing.T) {
	skipIfSlow(t)
	_, err := newHost().tryOpen(t, fmt.Sprintf("{module: %q, config: {refuse: no threshold}}", built.Module(t, "testdata/guest")))
	must.Fail(t, err, "rtr_init: no threshold")
}

func skipIfSlow(t testing.TB) {
	t.Helper()
	if effort.Race {
		t.Skip("compiling another guest takes too long under the race detector")
	}
}

// shownEvent returns the expected output of the guest for an upstream event.
func shownEvent(e *event.Event) any {
	if e == nil {
		return nil
	}
	return map[string]any{"id": e.ID, "type": e.Type, "source": e.Source, "subject": e.Subject, "route": e.Route, "time": e.Time, "data": json.RawMessage(e.Data)}
}
