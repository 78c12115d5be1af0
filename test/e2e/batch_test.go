package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// TestBatchOfOneObject shows that the changes of one object that are pending while a receiver is
// busy arrive in one request, in order.
func TestBatchOfOneObject(t *testing.T) {
	// Guarantee: key-order-in-batch
	t.Parallel()
	s, ns := sandboxtest.StartNamespace(t)
	var mu sync.Mutex
	var requests [][]string
	busy := make(chan struct{})
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var events []struct {
			Data struct {
				Object struct{ Data map[string]string }
			}
		}
		must.Report(t, json.NewDecoder(r.Body).Decode(&events))
		var values []string
		for _, e := range events {
			values = append(values, e.Data.Object.Data["value"])
		}
		mu.Lock()
		requests = append(requests, values)
		mu.Unlock()
		<-busy
	}))
	defer receiver.Close()
	release := sync.OnceFunc(func() { close(busy) })
	defer release()
	r := routertest.Start(t, s.Kubeconfig(), fmt.Sprintf(`
sources: {maps: {resource: v1/configmaps, namespaces: %s}}
sinks: {hook: {webhook: {url: %q, mode: batched, timeout: 5m}}}
routes: [{name: all, from: maps, filter: object.metadata.name == "hot", to: hook}]
`, ns, receiver.URL))
	r.Ready(t)
	maps := routertest.Use(t, s, routertest.ConfigMaps, ns)
	maps.Make(routertest.ConfigMap("hot", "0"))
	came := func() [][]string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(requests)
	}
	routertest.Poll(t, "the first request", func() bool { return len(came()) == 1 })
	want := []string{}
	for i := 1; i <= 20; i++ {
		maps.Change("hot", fmt.Sprintf(`{"data":{"value":"%d"}}`, i))
		want = append(want, fmt.Sprint(i))
	}
	routertest.Poll(t, "all changes to wait", func() bool { return r.Metric(t, `deltarouter_route_queue_deltas{route="all"}`) == 21 })
	r.Saved(t) // an object's first delivery waits until it is on disk
	release()
	routertest.Poll(t, "all to be delivered", func() bool { return r.Metric(t, `deltarouter_route_queue_deltas{route="all"}`) == 0 })
	if got := came(); len(got) != 2 || !slices.Equal(got[1], want) {
		t.Errorf("the requests had %q, want one with %q behind the first", got, want)
	}
}
