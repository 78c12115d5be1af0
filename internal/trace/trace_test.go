package trace_test

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/deltarouter/deltarouter/internal/trace"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/test/leaks"
	"github.com/deltarouter/deltarouter/test/must"
)

func TestMain(m *testing.M) { leaks.Main(m) }

func span() *trace.Span { return &trace.Span{Context: trace.Context{Span: trace.SpanID{1}}} }

// TestBounds: a span keeps the first and the last steps and a bounded number of links, and counts
// the others.
func TestBounds(t *testing.T) {
	s := span()
	for i := range 100 {
		s.Add(trace.Step{Size: i, Err: "a" + strings.Repeat("ü", 10_000)})
		s.Absorb(span())
	}
	if len(s.Steps) != 32 || s.Skipped != 68 || s.Steps[0].Size != 0 || s.Steps[1].Size != 69 || s.Steps[31].Size != 99 || len(s.Steps[5].Err) > 512 || len(s.Steps[5].Err) < 509 {
		t.Errorf("%d steps, %d skipped: %v", len(s.Steps), s.Skipped, s.Steps[1].Size)
	}
	// Protobuf encodes no request with other text, so all its spans would be lost.
	if !utf8.ValidString(s.Steps[5].Err) {
		t.Errorf("the error ends within a character: %q", s.Steps[5].Err)
	}
	if len(s.Links) != 32 || s.Unlinked != 68 {
		t.Errorf("%d links, %d more", len(s.Links), s.Unlinked)
	}
	last := span()
	last.Absorb(s)
	if len(last.Links) != 32 || last.Unlinked != 69 {
		t.Errorf("%d links, %d more", len(last.Links), last.Unlinked)
	}
}

type unsampled struct{}

func (unsampled) Samples(trace.ID) bool { return false }
func (unsampled) Export(*trace.Record)  {}

// BenchmarkSpan measures the span of a delta that is not sampled, with one call of a handler and
// one write, and the same calls without tracing.
func BenchmarkSpan(b *testing.B) {
	o, err := event.ParseObject(&event.Resource{Cluster: "test"}, `{"metadata":{"namespace":"default","name":"web","uid":"0a1b","resourceVersion":"7"}}`)
	if err != nil {
		b.Fatal(err)
	}
	d, now := &event.Delta{Source: "pods", Op: event.Updated, New: o, Seen: time.Now()}, time.Now()
	for _, c := range []struct {
		name   string
		output trace.Output
	}{{"off", nil}, {"ratio=0", unsampled{}}} {
		b.Run(c.name, func(b *testing.B) {
			var tracer trace.Tracer
			tracer.Use(c.output)
			b.ReportAllocs()
			for b.Loop() {
				s := tracer.Begin(d, now)
				s.Take(now)
				_ = s.TraceParent()
				s.Add(trace.Step{Kind: trace.Handle, Start: now, End: now})
				s.Add(trace.Step{Kind: trace.Deliver, Start: now, End: now})
				tracer.End(s, d, func(*trace.Record) {})
			}
		})
	}
}

// exporter samples and counts the spans.
type exporter struct{ exported int }

func (e *exporter) Samples(trace.ID) bool { return true }
func (e *exporter) Export(*trace.Record)  { e.exported++ }

// TestHistory: the history takes each span, sampled or not, and without traces the receivers get no
// header.
func TestHistory(t *testing.T) {
	o, err := event.ParseObject(&event.Resource{Cluster: "test"}, `{"metadata":{"namespace":"default","name":"web","uid":"0a1b","resourceVersion":"7"}}`)
	must.Succeed(t, err)
	d := &event.Delta{Source: "pods", Op: event.Updated, New: o}
	for name, tt := range map[string]struct {
		out            trace.Output
		keep           bool
		kept, exported int
	}{
		"nothing":      {nil, false, 0, 0},
		"history":      {nil, true, 1, 0},
		"traces":       {&exporter{}, false, 0, 1},
		"both":         {&exporter{}, true, 1, 1},
		"history only": {unsampled{}, true, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var tracer trace.Tracer
			kept := 0
			tracer.Use(tt.out)
			if tt.keep {
				tracer.Keep(func(r *trace.Record) {
					if kept++; r.Name != "web" || r.RV != "7" {
						t.Errorf("got %+v", r)
					}
				})
			}
			s := tracer.Begin(d, time.Time{})
			if got := s.TraceParent() != ""; got != (tt.out != nil) {
				t.Errorf("a header: %t", got)
			}
			tracer.End(s, d, func(*trace.Record) {})
			exported := 0
			if e, ok := tt.out.(*exporter); ok {
				exported = e.exported
			}
			if kept != tt.kept || exported != tt.exported {
				t.Errorf("kept %d, exported %d", kept, exported)
			}
		})
	}
}
