package export_test

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/internal/trace"
	"github.com/deltarouter/deltarouter/internal/trace/export"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/test/leaks"
	"github.com/deltarouter/deltarouter/test/must"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// receiver is a receiver of OTLP over HTTP.
type receiver struct {
	answer func(w http.ResponseWriter, r *http.Request, n int) // nil: 200

	mu    sync.Mutex
	asked int
	spans []*tracepb.Span
	about map[string]string // the attributes of the resource
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	body, _ := io.ReadAll(request.Body)
	var in collector.ExportTraceServiceRequest
	if err := proto.Unmarshal(body, &in); err != nil || request.URL.Path != "/v1/traces" {
		http.Error(w, "bad", http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked++
	if r.answer != nil {
		r.answer(w, request, r.asked)
		return
	}
	r.about = map[string]string{"authorization": request.Header.Get("Authorization")}
	for _, resource := range in.GetResourceSpans() {
		for _, a := range resource.GetResource().GetAttributes() {
			r.about[a.GetKey()] = a.GetValue().GetStringValue()
		}
		for _, scope := range resource.GetScopeSpans() {
			r.spans = append(r.spans, scope.GetSpans()...)
		}
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

// open starts an exporter to a receiver.
func open(t *testing.T, r *receiver, more string) (*export.Exporter, *metrics.Metrics) {
	t.Helper()
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	return openAt(t, server.URL, more)
}

func openAt(t *testing.T, url, more string) (*export.Exporter, *metrics.Metrics) {
	t.Helper()
	node, problems := config.ParseNode("test.yaml", []byte("{endpoint: '"+url+"', protocol: http"+more+"}"))
	must.Succeed(t, problems.Err())
	var c config.Traces
	must.Succeed(t, node.Decode(&c).Err())
	m := metrics.New()
	e, err := export.New(t.Context(), &c, export.Env{Version: "v1", Cluster: "test", Metrics: m, Log: slog.New(slog.DiscardHandler)})
	must.Succeed(t, err)
	return e, m
}

func closeWithin(t *testing.T, e *export.Exporter, limit time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), limit)
	defer cancel()
	must.Succeed(t, e.Close(ctx))
}

func count(m *metrics.Metrics, result string) float64 {
	families, _ := m.Registry().Gather()
	for _, f := range families {
		if f.GetName() == "deltarouter_trace_spans_total" {
			for _, s := range f.GetMetric() {
				if s.GetLabel()[0].GetValue() == result {
					return s.GetCounter().GetValue()
				}
			}
		}
	}
	return 0
}

func record(n byte) *trace.Record {
	at := time.Unix(100, 0)
	s := &trace.Span{Context: trace.Context{Trace: trace.ID{1, n}, Span: trace.SpanID{2, n}, Sampled: true}, Matched: at, Taken: at.Add(time.Second)}
	s.Add(trace.Step{Kind: trace.Handle, Name: "enrich", Start: at.Add(time.Second), End: at.Add(2 * time.Second), Size: 3})
	s.Add(trace.Step{Kind: trace.Deliver, Name: "hook", Start: at.Add(2 * time.Second), End: at.Add(3 * time.Second), Size: 1, Err: "answered 400"})
	s.Fail("answered 400")
	return &trace.Record{
		Span: s, Route: "restarts", Source: "pods", Op: "updated", Namespace: "default", Name: "web", UID: "u", RV: "7",
		Seen: at.Add(-time.Second), End: at.Add(4 * time.Second), Result: trace.DeadLettered, Events: 1,
	}
}

// TestExport: the receiver gets the span of a route with its steps as children, and the close sends
// the spans that wait.
func TestExport(t *testing.T) {
	r := &receiver{}
	e, m := open(t, r, ", headers: {authorization: token}, serviceName: router-a")
	first, second := record(1), record(2)
	second.Parent = trace.SpanID{9}
	second.Absorb(first.Span)
	e.Export(first)
	e.Export(second)
	closeWithin(t, e, time.Minute)
	var lines []string
	for _, s := range r.spans {
		line := fmt.Sprintf("%s %x parent=%x %s %v", s.GetName(), s.GetSpanId(), s.GetParentSpanId(), time.Duration(s.GetEndTimeUnixNano()-s.GetStartTimeUnixNano()), s.GetStatus().GetMessage())
		if hex.EncodeToString(s.GetTraceId()) != first.Trace.String() {
			if s.GetName() != "route restarts" {
				continue
			}
			line = fmt.Sprintf("%s %x parent=%x links to %x", s.GetName(), s.GetSpanId(), s.GetParentSpanId(), s.GetLinks()[0].GetSpanId())
		}
		lines = append(lines, line)
	}
	want := `wait 0201000000000001 parent=0201000000000000 1s 
handle enrich 0201000000000002 parent=0201000000000000 1s 
deliver hook 0201000000000003 parent=0201000000000000 1s answered 400
route restarts 0201000000000000 parent= 5s answered 400
route restarts 0202000000000000 parent=0900000000000000 links to 0201000000000000`
	if got := strings.Join(lines, "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if r.about["service.name"] != "router-a" || r.about["k8s.cluster.name"] != "test" || r.about["authorization"] != "token" {
		t.Errorf("got %v", r.about)
	}
	if n := count(m, metrics.SpansExported); n != 8 {
		t.Errorf("%v spans are counted as exported", n)
	}
	for _, a := range r.spans[3].GetAttributes() {
		if a.GetKey() == "deltarouter.result" && a.GetValue().GetStringValue() != "dead_lettered" {
			t.Errorf("got %v", a)
		}
	}
}

// TestSamples: the decision depends on the ID of the trace only, and the share is that of the
// ratio.
func TestSamples(t *testing.T) {
	r := &receiver{}
	for ratio, bounds := range map[string][2]int{"0": {0, 0}, "0.1": {800, 1200}, "1": {10_000, 10_000}} {
		e, _ := open(t, r, ", ratio: "+ratio)
		again, _ := open(t, r, ", ratio: "+ratio)
		n := 0
		for i := range 10_000 {
			id := trace.ID{8: byte(i * 41), 9: byte(i >> 5), 10: byte(i)}
			if e.Samples(id) {
				n++
			}
			if e.Samples(id) != again.Samples(id) {
				t.Fatalf("ratio %s: two exporters decide differently", ratio)
			}
		}
		if n < bounds[0] || n > bounds[1] {
			t.Errorf("ratio %s samples %d of 10000", ratio, n)
		}
		closeWithin(t, e, time.Minute)
		closeWithin(t, again, time.Minute)
	}
}

// TestUnavailable: Export never blocks, whatever the receiver does; spans beyond the queue are
// dropped and counted, and the close ends in time.
func TestUnavailable(t *testing.T) {
	// Guarantee: traces
	const records = 5000
	hang := make(chan struct{})
	for name, answer := range map[string]func(http.ResponseWriter, *http.Request, int){
		"unavailable": func(w http.ResponseWriter, _ *http.Request, _ int) { w.WriteHeader(http.StatusServiceUnavailable) },
		"slow": func(_ http.ResponseWriter, r *http.Request, _ int) {
			select {
			case <-hang:
			case <-r.Context().Done():
			}
		},
		"rejects": func(w http.ResponseWriter, _ *http.Request, _ int) { w.WriteHeader(http.StatusGone) },
		"huge": func(w http.ResponseWriter, _ *http.Request, _ int) {
			w.Header().Set("Content-Type", "application/x-protobuf")
			for range 64 {
				if _, err := w.Write(make([]byte, 1<<20)); err != nil {
					return
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			e, m := open(t, &receiver{answer: answer}, "")
			for i := range records {
				e.Export(record(byte(i)))
			}
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			must.Succeed(t, e.Close(ended))
			if count(m, metrics.SpansExported) > 0 || count(m, metrics.SpansDropped)+count(m, metrics.SpansRejected) == 0 {
				t.Errorf("dropped %v, rejected %v, exported %v", count(m, metrics.SpansDropped), count(m, metrics.SpansRejected), count(m, metrics.SpansExported))
			}
		})
	}
	close(hang)
	e, _ := openAt(t, "http://127.0.0.1:1", "")
	e.Export(record(1))
	closeWithin(t, e, time.Minute)
}

// TestRetry: a request is sent again while the receiver is unavailable.
func TestRetry(t *testing.T) {
	r := &receiver{}
	served := make(chan struct{})
	r.answer = func(w http.ResponseWriter, _ *http.Request, n int) {
		if n == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/x-protobuf")
		close(served)
	}
	e, m := open(t, r, "")
	e.Export(record(1))
	select {
	case <-served:
	case <-time.After(time.Minute):
		t.Fatal("the request was not repeated")
	}
	closeWithin(t, e, time.Minute)
	if n := count(m, metrics.SpansExported); n != 4 {
		t.Errorf("%v spans are counted", n)
	}
}

// TestFlush: the close sends all spans that wait, in several requests.
func TestFlush(t *testing.T) {
	const records = 1500
	r := &receiver{}
	e, m := open(t, r, "")
	for i := range records {
		e.Export(record(byte(i)))
	}
	closeWithin(t, e, time.Minute)
	if n := count(m, metrics.SpansExported); n != 4*records || r.asked < 4*records/(512+4) {
		t.Errorf("%v spans were exported in %d requests", n, r.asked)
	}
	e.Export(record(0)) // too late, and lost
}
