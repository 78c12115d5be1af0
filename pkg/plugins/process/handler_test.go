package process_test

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
	"github.com/deltarouter/deltarouter/pkg/plugins/process"
	"github.com/deltarouter/deltarouter/test/effort"
	"github.com/deltarouter/deltarouter/test/handlertest"
	"github.com/deltarouter/deltarouter/test/must"
)

func TestContract(t *testing.T) {
	b := newBench(t)
	plugintest.RunHandler(t, plugintest.Handler{Kind: process.Kind(), Config: programYAML("sdk", ""), Env: b.env})
	b.nothingLeft()
}

func TestContractWithoutTLS(t *testing.T) {
	b := newBench(t)
	plugintest.RunHandler(t, plugintest.Handler{Kind: process.Kind(), Config: programYAML("sdk", "tls: false"), Env: b.env})
	b.nothingLeft()
}

func TestFields(t *testing.T) {
	// Guarantee: handler-fields
	b := newBench(t)
	h := b.open("fields: [status.phase]")
	defer b.close()
	handlertest.Fields(t, h, "objects")
}

func TestDeltasAndVerdicts(t *testing.T) {
	b := newBench(t)
	b.open("")
	defer b.close()
	got := b.handle("web", "fail", "retry", "drop", "panic", "nojson", "many", "web.2")
	for i, want := range []string{
		`ok {"name":"web","op":"added","version":"1"}`,
		"fail ", "retry ", "drop", "fail ", "fail ", "fail ",
		`ok {"name":"web.2","op":"added","version":"8"}`,
	} {
		if !strings.HasPrefix(got[i], want) {
			t.Errorf("%d: got %s, want %s", i, got[i], want)
		}
	}
	contains(t, got[1], `process "legacy": not this one`)
	contains(t, got[2], "later")
	contains(t, got[4], "panic: on purpose")
	contains(t, got[5], "event 0 of the plugin")
	contains(t, got[6], "100 events for one delta, at most 64 (limits.events)")
	results, err := b.handler.Handle(t.Context(), deltas(t, "retry", "nojson"))
	must.Succeed(t, err)
	if after := plugins.RetryAfter(results[0].Err); after != 3*time.Second {
		t.Errorf("to be retried after %v", after)
	}
	if plugins.ClassOf(results[0].Err) == plugins.Rejected || plugins.ClassOf(results[1].Err) != plugins.Rejected {
		t.Errorf("rejected: %v, %v", results[0].Err, results[1].Err)
	}
}

// TestOldAndNew: the plugin gets the last state of a deleted object.
func TestOldAndNew(t *testing.T) {
	b := newBench(t)
	h := b.open("")
	defer b.close()
	results, err := h.Handle(t.Context(), []*event.Delta{{Source: "pods", Op: event.Deleted, Old: plugintest.Pod(t, "gone", 7, 10), Seen: time.Now()}})
	if err != nil || len(results[0].Events) != 1 {
		t.Fatal(results, err)
	}
	if got := string(results[0].Events[0].Data); got != `{"name":"gone","op":"deleted","version":"7"}` {
		t.Error(got)
	}
}

// TestRulesAboutTime: the plugin gets the fields of rules about time and limits, and the event of
// an upstream route, if the delta has them.
func TestRulesAboutTime(t *testing.T) {
	b := newBench(t)
	h := b.open("")
	defer b.close()
	seen, pod := time.Unix(1e9, 5), plugintest.Pod(t, "time", 1, 10)
	since := seen.Add(-time.Minute)
	for _, d := range []event.Delta{
		{Op: event.Added, New: pod},
		{Op: event.Entered, New: pod, Since: since, Late: true},
		{Op: event.Entered, New: pod, Since: since, Repeat: 3, Suppressed: 1 << 40},
		{Op: event.Left, Old: pod, Since: since},
		{Op: event.Updated, New: pod, Old: pod, Suppressed: 1, TraceParent: "00-1-2-01", With: []byte(`{"pods":["a"],"none":null}`)},
		{Op: event.Updated, New: pod, Event: &event.Event{
			ID: "i", Type: "t", Source: "/s", Subject: "n/ü", Route: "r", Time: since, Data: []byte(`{"a":1}`),
		}},
	} {
		d.Source, d.Seen = "pods", seen
		results, err := h.Handle(t.Context(), []*event.Delta{&d})
		if err != nil || len(results[0].Events) != 1 {
			t.Fatal(results, err)
		}
		var got struct {
			Op           string
			Since, Seen  time.Time
			Late, Repeat bool
			Suppressed   int
			TraceParent  string
			With         string
			Event        *struct {
				event.Event

				Data json.RawMessage
			}
		}
		must.Succeed(t, json.Unmarshal(results[0].Events[0].Data, &got))
		if got.Op != d.Op.String() || !got.Since.Equal(d.Since) || !got.Seen.Equal(seen) || got.Late != d.Late || got.Repeat != (d.Repeat > 0) || got.Suppressed != d.Suppressed || got.TraceParent != d.TraceParent || got.With != string(d.With) {
			t.Errorf("%s: got %+v", &d, got)
		}
		if e := got.Event; e != nil {
			e.Event.Data, e.Event.Time = e.Data, e.Event.Time.Local()
			if d.Event == nil || !e.Event.Time.Equal(d.Event.Time) || fmt.Sprint(e.Event) != fmt.Sprint(*d.Event) {
				t.Errorf("%s: the event is %+v, want %+v", &d, e.Event, d.Event)
			}
		} else if d.Event != nil {
			t.Errorf("%s: the event is missing", &d)
		}
	}
}

// TestCrashFindsTheCulprit: a crash fails only the delta that causes it.
func TestCrashFindsTheCulprit(t *testing.T) {
	// Guarantee: plugin-crash
	b := newSharedBench(t)
	b.open("")
	defer b.close()
	names := []string{"a", "b", "c", "d", "e", "crash", "f", "g", "h"}
	for i, got := range b.handle(names...) {
		switch {
		case names[i] == "crash":
			contains(t, got, "fail ", "the plugin was lost", "the plugin has ended: exit status 3")
		case !strings.HasPrefix(got, "ok "):
			t.Errorf("%s: %s", names[i], got)
		}
	}
}

// TestCrashRedelivers: a crash in the middle of a batch is not an attempt.
func TestCrashRedelivers(t *testing.T) {
	// Guarantee: plugin-crash
	b := newSharedBench(t)
	b.open("env: {ONCE: " + filepath.Join(t.TempDir(), "once") + "}")
	defer b.close()
	for i, got := range b.handle("a", "crashonce.1", "b") {
		if !strings.HasPrefix(got, "ok ") {
			t.Errorf("%d: %s", i, got)
		}
	}
	contains(t, b.handle("crashonce.2")[0], "ok ")
	if got := ended(t, b, "exit"); got != 2 {
		t.Errorf("%v processes were lost", got)
	}
}

// TestCrashSparesOthers: a crash that another call causes fails no delta of a running call, however
// often.
func TestCrashSparesOthers(t *testing.T) {
	// Guarantee: plugin-crash
	b := newSharedBench(t)
	h := b.open("limits: {breaker: 0}")
	defer b.close()
	ctx, done := context.WithCancel(t.Context())
	var others sync.WaitGroup
	for range b.env.Workers - 1 {
		others.Go(func() {
			for ctx.Err() == nil {
				results, err := h.Handle(context.WithoutCancel(ctx), deltas(t, "slow"))
				if err != nil || results[0].Verdict != plugins.OK {
					t.Errorf("an innocent delta: %v, %v", results, err)
					return
				}
			}
		})
	}
	for range effort.Rounds(3, 8, 50) {
		results, err := h.Handle(t.Context(), deltas(t, "crash"))
		if err != nil || results[0].Verdict != plugins.Fail {
			t.Errorf("the culprit: %v, %v", results, err)
		}
	}
	done()
	others.Wait()
}

// TestHangRedelivers: a call that exceeds its time ends the process, and only the delta that hangs
// fails.
func TestHangRedelivers(t *testing.T) {
	// Guarantee: plugin-crash
	b := newSharedBench(t)
	b.open("limits: {timeout: 3s}")
	defer b.close()
	got := b.handle("hang", "a")
	contains(t, got[0], "fail ", "a call took longer than 3s (limits.timeout)")
	contains(t, got[1], "ok ")
	if got := ended(t, b, "timeout"); got < 2 {
		t.Errorf("%v processes were lost", got)
	}
}

// TestStoppedProcess: a stopped process is killed. go-plugin would wait for it without end, and so
// would its Ping and its Kill.
func TestStoppedProcess(t *testing.T) {
	// Guarantee: plugin-crash
	b := newSharedBench(t)
	h := b.open("limits: {health: 500ms, timeout: 10m, stopTimeout: 200ms}")
	results := make(chan []plugins.Result, 1)
	go func() {
		r, _ := h.Handle(t.Context(), deltas(t, "stop"))
		results <- r
	}()
	select {
	case r := <-results:
		contains(t, r[0].Err.Error(), "health: DeadlineExceeded")
	case <-time.After(time.Minute):
		t.Fatal("a stopped process was not noticed")
	}
	b.close()
}

// TestKilledWhileStopped: Close ends a stopped process.
func TestKilledWhileStopped(t *testing.T) {
	// Guarantee: plugin-crash
	b := newBench(t)
	b.open("limits: {health: 10m, stopTimeout: 200ms}")
	pid := pidOf(t, b)
	signal(t, pid, stopSignal)
	eventually(t, "the process is stopped", func() bool { return stateOf(pid) == "T" })
	b.close()
	contains(t, b.log.String(), "plugin did not stop in time; it is killed")
}

// TestGrandchildrenEnd: the processes that a plugin started end with it, after an exit and after a
// crash.
func TestGrandchildrenEnd(t *testing.T) {
	// Guarantee: plugin-crash
	b := newBench(t)
	b.open("")
	number := func() (pid int) {
		text := strings.TrimPrefix(b.handle("spawn")[0], "ok ")
		if err := json.Unmarshal([]byte(text), &pid); err != nil {
			t.Fatal(text, err)
		}
		return pid
	}
	first := number()
	b.handle("crash")
	gone(t, first)
	second := number()
	b.close()
	gone(t, second)
}

// TestMessageSize: both sides accept messages up to limits.input and limits.output, beyond gRPC's 4
// MiB.
func TestMessageSize(t *testing.T) {
	b := newSharedBench(t)
	h := b.open("limits: {input: 12Mi, output: 1Mi}")
	defer b.close()
	large := func(name string, size int) *event.Delta {
		return &event.Delta{Source: "pods", Op: event.Added, New: plugintest.Pod(t, name, 1, size)}
	}
	results, err := h.Handle(t.Context(), []*event.Delta{
		large("a", 11<<20), large("b", 11<<20), large("c", 13<<20), large("big", 10), large("d", 10),
	})
	must.Succeed(t, err)
	for i, want := range []string{"", "", "at most 12582912 (limits.input)", "(limits.output is 1048576)", ""} {
		switch r := results[i]; {
		case want == "" && r.Verdict != plugins.OK:
			t.Errorf("%d: %v", i, r.Err)
		case want != "" && (r.Verdict != plugins.Fail || plugins.ClassOf(r.Err) != plugins.Rejected || !strings.Contains(r.Err.Error(), want)):
			t.Errorf("%d: %v, want %s", i, r.Err, want)
		}
	}
	if n := ended(t, b, "exit") + ended(t, b, "timeout") + ended(t, b, "connection"); n != 0 {
		t.Errorf("%v processes were lost over sizes", n)
	}
}

// TestBatchLimit: no call has more deltas than limits.batch.
func TestBatchLimit(t *testing.T) {
	b := newBench(t)
	b.openRole("raw", "tls: false\nlimits: {batch: 3}")
	defer b.close()
	names, want := make([]string, 20), make([]string, 20)
	for i := range names {
		names[i], want[i] = fmt.Sprint("count.", i), "ok 3"
	}
	want[18], want[19] = "ok 2", "ok 2"
	if got := b.handle(names...); !slices.Equal(got, want) {
		t.Error(got)
	}
}

// TestBreaker: after repeated losses the circuit breaker opens. Deltas that are postponed meanwhile
// have no attempt counted.
func TestBreaker(t *testing.T) {
	b := newSharedBench(t)
	h := b.open("limits: {breaker: 3}")
	defer b.close()
	for range 20 {
		results, err := h.Handle(t.Context(), deltas(t, "crash"))
		must.Succeed(t, err)
		if plugins.ClassOf(results[0].Err) == plugins.Postponed {
			contains(t, results[0].Err.Error(), "the circuit breaker is open", "exit status 3")
			if plugins.RetryAfter(results[0].Err) <= 0 {
				t.Error("it does not say when to come back")
			}
			return
		}
	}
	t.Error("the breaker never opened")
}
