package js_test

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/test/must"
)

// TestOutage shows that a delta is postponed, without an attempt, if it failed after a request
// without a response, or asks for a retry. Another failure counts, also beside such a delta. The
// circuit breaker opens while the host refuses connections.
func TestOutage(t *testing.T) {
	// Guarantee: handler-outage
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	address := closed.Addr().String()
	must.Succeed(t, closed.Close())
	allow := fmt.Sprintf("allow: {http: [{host: %q, scheme: http, private: true}]}", address)
	ask := "const r = ctx.http({url: 'http://" + address + "/'})\n"
	for _, tt := range []struct {
		name, body string
		first      plugins.Class // of the first of two deltas
		want       string
	}{
		{"an exception after a refused connection", ask + "throw new Error('no API: ' + r.error)", plugins.Postponed, "no API: the connection was refused"},
		{"an exception without a request", "throw new Error('broken')", plugins.Failed, "broken"},
		{"a retry", "throw ctx.retry('status 503', 1000)", plugins.Postponed, "status 503"},
		{"an invalid event after a refused connection", ask + "return [{data: 1, type: '\\u0000'}]", plugins.Rejected, ""},
		{"only the delta with the request", "if (delta.object.metadata.resourceVersion === '3') { " + ask + " }\nthrow new Error('broken')", plugins.Failed, "broken"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			results, err := newHost().open(t, source(tt.body, allow)).Handle(t.Context(), pods(t, 2))
			must.Succeed(t, err)
			if got := plugins.ClassOf(results[0].Err); got != tt.first || !strings.Contains(fmt.Sprint(results[0].Err), tt.want) {
				t.Errorf("got %d %v", got, results[0].Err)
			}
			if strings.HasPrefix(tt.name, "only") && plugins.ClassOf(results[1].Err) != plugins.Postponed {
				t.Errorf("the delta with the request: got %v", results[1].Err)
			}
		})
	}
	h := newHost().open(t, source(ask+"if (r.status === 0) throw new Error(r.error)", allow))
	for range 5 {
		one(t, h)
	}
	breaking, ok := h.(interface{ Unavailable() (time.Time, error) })
	if _, reason := breaking.Unavailable(); !ok || reason == nil {
		t.Error("the handler does not say that it is unavailable")
	}
	if got := one(t, h); !strings.Contains(got, "the circuit breaker is open because the last calls failed") || !strings.Contains(got, "no answer from "+address) {
		t.Errorf("got %s", got)
	}
}
