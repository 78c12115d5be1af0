package pipeline_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltarouter/deltarouter/internal/pipeline"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/internal/trace"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// finished is a trace.Output that keeps the records.
type finished struct {
	samples bool

	mu  sync.Mutex
	all []*trace.Record
}

func (f *finished) Samples(trace.ID) bool { return f.samples }

func (f *finished) Export(r *trace.Record) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = append(f.all, r)
}

// lines returns one line for each record: its route, object and result, its steps, and its links.
func (f *finished) lines() (lines []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.all {
		line := fmt.Sprintf("%s %s %s", r.Route, r.Name, r.Result)
		for _, s := range r.Steps {
			line += fmt.Sprintf(" [%s %s %d]", [...]string{"handle", "deliver", "forward"}[s.Kind], s.Name, s.Size)
			if s.Err != "" {
				line += "!" + s.Err
			}
		}
		if len(r.Links) > 0 {
			line += fmt.Sprintf(" links=%d", len(r.Links))
		}
		if r.Reason != "" {
			line += " reason=" + r.Reason
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return lines
}

// traced starts a pipeline whose spans are kept.
func traced(t *testing.T, samples bool, routes ...spec.Settings) (*harness, *finished) {
	t.Helper()
	f := &finished{samples: samples}
	var tracer trace.Tracer
	tracer.Use(f)
	b := openAs(t, pipeline.Config{Tracer: &tracer}, routes...)
	b.Start(t.Context())
	return b, f
}

// TestTrace: the span of a delta has its steps, handlers and sinks get its traceparent, and a
// downstream route continues the trace.
func TestTrace(t *testing.T) {
	// Guarantee: traces
	synctest.Test(t, func(t *testing.T) {
		s := &recordingSink{}
		var handed string
		handler := handleEach(func(d *event.Delta) plugins.Result {
			handed = d.TraceParent
			return plugins.Result{Events: []plugins.Emit{{Data: []byte("{}")}}}
		})
		up := spec.Settings{Name: "up", Handler: handler, HandlerName: "h", Sinks: []spec.NamedSink{{Name: "route:down", Route: "down"}}}
		down := spec.Settings{Name: "down", Downstream: true, Sinks: to(s)}
		b, f := traced(t, true, up, down)
		d := delta(t, event.Updated, "a", 1, 2)
		b.admit(d)
		b.drain()
		equal(t, "spans", f.lines(), "down a delivered [deliver "+down.Sinks[0].Name+" 1]", "up a delivered [handle h 1] [forward route:down 1]")
		id := trace.Of(d).String()
		first, second := f.all[0], f.all[1]
		if first.Route != "up" {
			first, second = second, first
		}
		if want := fmt.Sprintf("00-%s-%x-01", id, first.Span.Span); handed != want {
			t.Errorf("the handler got %q, want %q", handed, want)
		}
		if want := fmt.Sprintf("00-%s-%x-01", id, second.Span.Span); s.events[0].TraceParent != want || !strings.Contains(string(s.events[0].AppendJSON(nil)), `"traceparent":"`+want+`"`) {
			t.Errorf("the sink got %q, want %q", s.events[0].TraceParent, want)
		}
		if second.Parent != first.Span.Span || first.Parent != (trace.SpanID{}) {
			t.Errorf("parents %x and %x", first.Parent, second.Parent)
		}
		if first.Matched.IsZero() || first.Taken.Before(first.Matched) || first.End.Before(first.Taken) || first.Seen.After(first.Matched) {
			t.Errorf("the times are not in order: %+v", first)
		}
		if d.TraceParent != "" {
			t.Error("the shared delta was modified")
		}
	})
}

// TestTraceFailures: failed deltas are exported although the ratio does not sample them, with the
// error of the step. A sink that is unavailable for a while is not a failure.
func TestTraceFailures(t *testing.T) {
	// Guarantee: traces
	synctest.Test(t, func(t *testing.T) {
		down := true
		s := &recordingSink{refuse: func(e event.Event) error {
			switch {
			case e.Subject == "default/rejected":
				return plugins.Reject(errors.New("no such channel"))
			case e.Subject == "default/late" && down:
				down = false
				return errors.New("unavailable")
			}
			return nil
		}}
		handler := handleEach(func(d *event.Delta) plugins.Result {
			if d.Key().Name == "trapped" {
				return plugins.Result{Verdict: plugins.Fail, Err: errors.New("it trapped")}
			}
			return ok(d)
		})
		route := spec.Settings{Name: "r", Handler: handler, HandlerName: "h", Sinks: to(s), Retry: spec.Retry{Attempts: 1, Exact: true}, Batch: spec.Batch{Size: 1}}
		b, f := traced(t, false, route)
		for _, name := range []string{"fine", "rejected", "late", "trapped"} {
			b.admit(delta(t, event.Added, name, 0, 1))
		}
		b.drain()
		sink := route.Sinks[0].Name
		equal(t, "spans", f.lines(),
			"r rejected dead_lettered [handle h 1] [deliver "+sink+" 1]!no such channel reason=no such channel",
			`r trapped dead_lettered [handle h 1]!it trapped [handle h 1]!it trapped reason=it trapped`)
		for _, e := range s.events {
			if !strings.HasSuffix(e.TraceParent, "-00") {
				t.Errorf("%s is not sampled, but its traceparent is %s", e.Subject, e.TraceParent)
			}
		}
	})
}

// TestTraceSecret: the span of a route that sees Secrets has no text of an error.
func TestTraceSecret(t *testing.T) {
	// Guarantee: secret-traces
	synctest.Test(t, func(t *testing.T) {
		s := &recordingSink{refuse: func(event.Event) error { return plugins.Reject(errors.New("hunter2")) }}
		b, f := traced(t, false, spec.Settings{Name: "r", Sinks: to(s), Secret: true})
		b.admit(delta(t, event.Added, "a", 0, 1))
		b.drain()
		if lines := f.lines(); len(lines) != 1 || strings.Contains(lines[0], "hunter2") || !strings.Contains(lines[0], "withheld") {
			t.Errorf("got %q", lines)
		}
	})
}

// TestTraceCoalesced: the span of a net change has links to those of the coalesced deltas, a
// bounded number. Its trace is that of the last one.
func TestTraceCoalesced(t *testing.T) {
	// Guarantee: traces
	synctest.Test(t, func(t *testing.T) {
		s, open := blockingSink()
		b, f := traced(t, true, spec.Settings{Name: "r", Sinks: to(s), Deliver: spec.Latest, Batch: spec.Batch{Size: 1}})
		b.admit(delta(t, event.Updated, "a", 1, 2))
		synctest.Wait() // the sink has it
		const more = 40
		var last *event.Delta
		for i := range more {
			last = delta(t, event.Updated, "a", 2+i, 3+i)
			b.admit(last)
		}
		open()
		b.drain()
		coalesced, links, unlinked := 0, 0, 0
		known := map[trace.Context]bool{}
		for _, r := range f.all {
			if r.Result == trace.Coalesced {
				coalesced++
				known[r.Context] = true
				continue
			}
			if r.Trace == trace.Of(last) {
				links, unlinked = len(r.Links), r.Unlinked
				for _, c := range r.Links {
					if !known[c] {
						t.Errorf("the link %v leads to no span", c)
					}
				}
			}
		}
		if coalesced != more-1 || links != 32 || links+unlinked != more-1 {
			t.Errorf("%d coalesced, %d links and %d more", coalesced, links, unlinked)
		}
	})
}

// TestTraceGroup: the span of the delta that makes the event of a group has links to those of the
// others, and these to it; they share its failure.
func TestTraceGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &timedSink{began: time.Now()}
		b, f := traced(t, false, groups(s, func(string) error { return plugins.Reject(errors.New("no")) }))
		for _, name := range []string{"a1", "a2", "a3"} {
			b.admit(delta(t, event.Added, name, 0, 1))
		}
		b.drain()
		equal(t, "spans", f.lines(),
			`r a1 dead_lettered links=1 reason=no`, `r a2 dead_lettered links=1 reason=no`,
			`r a3 dead_lettered [handle  3]!no links=2 reason=no`)
	})
}

// TestTraceRestored: a delta continues its trace after a restart, although nothing of the trace is
// on disk.
func TestTraceRestored(t *testing.T) {
	// Guarantee: traces
	synctest.Test(t, func(t *testing.T) {
		d, again := delta(t, event.Added, "a", 0, 7), delta(t, event.Added, "a", 0, 7)
		again.Seen = again.Seen.Add(time.Hour)
		if trace.Of(d) != trace.Of(again) {
			t.Error("the trace depends on more than the change")
		}
		for _, other := range []*event.Delta{delta(t, event.Added, "b", 0, 7), delta(t, event.Updated, "a", 7, 8), delta(t, event.Deleted, "a", 7, 0), delta(t, event.Sync, "a", 0, 7)} {
			if trace.Of(d) == trace.Of(other) {
				t.Errorf("%v has the same trace", other)
			}
		}
	})
}

// TestTraceOff: without tracing, a delivery allocates as much as it would without the code, and the
// events have no traceparent.
func TestTraceOff(t *testing.T) {
	var off *trace.Tracer
	d := delta(t, event.Updated, "a", 1, 2)
	if n := testing.AllocsPerRun(100, func() {
		s := off.Begin(d, time.Time{})
		s.Take(time.Time{})
		s.Add(trace.Step{})
		s.Fail("")
		if s.Exported() || s.TraceParent() != "" || s.Exemplar() != "" || off.On() {
			t.Fatal("it is on")
		}
		off.End(s, d, func(*trace.Record) {})
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	s := &recordingSink{}
	b := start(t, spec.Settings{Sinks: to(s)})
	b.admit(d)
	b.drain()
	if s.events[0].TraceParent != "" || strings.Contains(string(s.events[0].AppendJSON(nil)), "traceparent") {
		t.Error("an event is traced")
	}
}

// discardingOutput samples all or nothing, and drops the records.
type discardingOutput bool

func (o discardingOutput) Samples(trace.ID) bool { return bool(o) }
func (discardingOutput) Export(*trace.Record)    {}

// BenchmarkTrace measures a delta from Admit to ack like BenchmarkDelivery: without tracing, with a
// ratio of 0, and with a ratio of 1 (without the export).
func BenchmarkTrace(b *testing.B) {
	deltas := benchDeltas(b)
	for _, c := range []struct {
		name   string
		output trace.Output
	}{{"off", nil}, {"ratio=0", discardingOutput(false)}, {"ratio=1", discardingOutput(true)}} {
		b.Run(c.name, func(b *testing.B) {
			var tracer trace.Tracer
			tracer.Use(c.output)
			p := openAs(b, pipeline.Config{Tracer: &tracer}, benchRoute(64))
			p.Start(b.Context())
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				p.admit(deltas[i%len(deltas)])
			}
			p.drain()
		})
	}
}
