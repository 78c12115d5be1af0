package wasm_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
	"github.com/deltarouter/deltarouter/pkg/plugins/wasm"
	"github.com/deltarouter/deltarouter/test/must"
)

// cluster is a cache with two pods on a node. Each pod exceeds the first buffer of an SDK.
type cluster struct{ pods, nodes []*event.Object }

var _ plugins.Lookup = cluster{}

func (c cluster) Lookup(source, index, value string) []*event.Object {
	switch source + "." + index + "=" + value {
	case "pods.byNode=n1":
		return c.pods
	case "nodes.=":
		return c.nodes
	}
	return nil
}

func (c cluster) Count(source, index, value string) int { return len(c.Lookup(source, index, value)) }

func (c cluster) Get(_, _, name string) *event.Object {
	for _, o := range c.nodes {
		if o.Key().Name == name {
			return o
		}
	}
	return nil
}

// TestCalls: the host functions of all SDKs send the same requests, and report the same answers.
func TestCalls(t *testing.T) {
	requests := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests++
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("X-Answer", r.Method+r.Header.Get("X-Ask")+string(body))
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, strings.Repeat("é", 4000))
	}))
	defer server.Close()
	defer http.DefaultClient.CloseIdleConnections()
	cache := cluster{
		pods:  []*event.Object{plugintest.Pod(t, "a", 1, 5000), plugintest.Pod(t, "b", 1, 5000)},
		nodes: []*event.Object{plugintest.Object(t, `{"metadata":{"name":"n1"}}`)},
	}
	const want = `{"bytes":8000,"count":2,"denied":true,"header":"POST1é","list":1,"none":true,"one":"n1","path":"web","pods":["a","b"],"seen":"%s","status":201}`
	for _, e := range examples() {
		if e.name != "calls" {
			continue
		}
		t.Run(e.source, func(t *testing.T) {
			h := newHost()
			h.env.Workers, h.env.Lookup, requests = 1, cache, 0
			allow := fmt.Sprintf("{kv: true, lookup: [pods.byNode, nodes], http: [{host: %q, scheme: http}]}", strings.TrimPrefix(server.URL, "http://"))
			handler := h.open(t, fmt.Sprintf("{module: %q, config: {url: %s/x}, allow: %s, limits: {fuel: 100M}}", e.module(t), server.URL, allow))
			for _, seen := range []string{"", "x", "xx"} {
				results, err := handler.Handle(t.Context(), one(t, "web"))
				must.Succeed(t, err)
				r := results[0]
				if r.Verdict != plugins.OK || len(r.Events) != 2 {
					t.Fatal(r)
				}
				if early := r.Events[0]; early.Type != "early" || string(early.Data) != `"web"` {
					t.Errorf("got %s %s", early.Type, early.Data)
				}
				if got := string(r.Events[1].Data); got != fmt.Sprintf(want, seen) {
					t.Errorf("got  %s\nwant %s", got, fmt.Sprintf(want, seen))
				}
			}
			if v, ok := h.env.KV.Get("web"); string(v) != "xxx" || !ok {
				t.Errorf("%q is kept", v)
			}
			if _, ok := h.env.KV.Get("gone"); ok {
				t.Error("a deleted key is kept")
			}
			if requests != 3 {
				t.Errorf("%d requests for 3 deltas: one that did not fit was done again", requests)
			}
		})
	}
}

// BenchmarkHandle measures the cost of a call. The guest does nothing.
func BenchmarkHandle(b *testing.B) {
	for _, n := range []int{1, 64} {
		b.Run(fmt.Sprintf("%d deltas of 2 KB", n), func(b *testing.B) {
			node := plugintest.Node(b, fmt.Sprintf("{module: %q}", guest(constant(opI64, 0)).write(b)))
			handler, err := wasm.Kind().Open(b.Context(), node, newHost().env)
			must.Succeed(b, err)
			batch := make([]*event.Delta, n)
			for i := range batch {
				batch[i] = &event.Delta{Source: "pods", Op: event.Updated, Old: plugintest.Pod(b, "p", 1, 2000), New: plugintest.Pod(b, "p", 2, 2000)}
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := handler.Handle(b.Context(), batch); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/delta")
			must.Report(b, handler.Close(b.Context()))
		})
	}
}
