package e2e

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// observed is a webhook and a receiver of traces.
type observed struct {
	mu     sync.Mutex
	bodies []string
	sent   []string // the header traceparent of each request to the webhook
	spans  []*tracepb.Span
}

func (o *observed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	o.mu.Lock()
	defer o.mu.Unlock()
	if r.URL.Path == "/hook" {
		if o.bodies = append(o.bodies, string(body)); strings.Contains(string(body), "/bad") {
			w.WriteHeader(http.StatusBadRequest)
		}
		o.sent = append(o.sent, r.Header.Get("Traceparent"))
		return
	}
	var in collector.ExportTraceServiceRequest
	if proto.Unmarshal(body, &in) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	for _, of := range in.GetResourceSpans() {
		for _, scope := range of.GetScopeSpans() {
			o.spans = append(o.spans, scope.GetSpans()...)
		}
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

// of returns the names of the exported spans whose traceparent a request to the webhook had, which
// is the n-th, and whether that is sampled.
func (o *observed) of(n int) (names []string, sampled bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	parts := strings.Split(o.sent[n], "-")
	if len(parts) != 4 {
		return nil, false
	}
	for _, s := range o.spans {
		if fmt.Sprintf("%x", s.GetTraceId()) == parts[1] && (fmt.Sprintf("%x", s.GetSpanId()) == parts[2] || fmt.Sprintf("%x", s.GetParentSpanId()) == parts[2]) {
			names = append(names, strings.TrimSpace(s.GetName()+" "+s.GetStatus().GetMessage()))
		}
	}
	slices.Sort(names)
	return names, parts[3] == "01"
}

func (o *observed) requests() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.sent)
}

// TestTraces shows the way of deltas through the router: the receiver of an event gets the span
// that is exported. A reload turns tracing off, and on with a ratio of 0, where only a failure is
// exported. The stop exports the spans that wait.
func TestTraces(t *testing.T) {
	// Guarantee: traces
	t.Parallel()
	s, ns := sandboxtest.StartNamespace(t)
	o := &observed{}
	server := httptest.NewServer(o)
	defer server.Close()
	traces := fmt.Sprintf("traces: {endpoint: %q, protocol: http, ratio: 1}\n", server.URL)
	config := fmt.Sprintf(`
sources: {maps: {resource: v1/configmaps, namespaces: %s}}
sinks: {hook: {webhook: {url: "%s/hook"}}}
routes: [{name: r, from: maps, emit: '{"name": object.metadata.name}', to: hook}]
`, ns, server.URL)
	file := routertest.Install(t, s.Kubeconfig(), "")
	head, err := os.ReadFile(file)
	must.Succeed(t, err)
	routertest.Exchange(t, file, string(head)+traces+config)
	router := routertest.StartFile(t, file)
	router.Ready(t)
	maps := routertest.Use(t, s, routertest.ConfigMaps, ns)
	deliver := func(name string) {
		t.Helper()
		n := o.requests()
		maps.Make(routertest.ConfigMap(name, "1"))
		routertest.Poll(t, "the request of "+name, func() bool { return o.requests() > n })
	}
	expect := func(n int, sampled bool, want ...string) {
		t.Helper()
		got, flag := o.of(n)
		if !slices.Equal(got, want) || flag != sampled {
			t.Errorf("request %d: sampled %v, spans %q, want %v, %q", n, flag, got, sampled, want)
		}
	}
	deliver("one")
	// The router has the answer a moment later than the request is counted.
	routertest.Poll(t, "the spans of the first delivery", func() bool { names, _ := o.of(0); return len(names) == 4 })
	router.Reload(t, file, string(head)+config, true)
	deliver("two")
	router.Reload(t, file, string(head)+strings.Replace(traces, "ratio: 1", "ratio: 0", 1)+config, true)
	deliver("three")
	deliver("bad")
	router.WaitLog(t, "the trace of the failure", func(log string) bool { return strings.Contains(log, `"traceId":"`) })
	if code := router.Stop(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	expect(0, true, "deliver hook", "handle emit", "route r", "wait")
	expect(1, false)
	expect(2, false)
	rejected := fmt.Sprintf("webhook %q: %s answered 400 Bad Request", "hook", server.URL)
	expect(3, false, "deliver hook "+rejected, "handle emit", "route r "+rejected, "wait")
}
