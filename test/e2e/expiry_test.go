package e2e

import (
	"fmt"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// TestExpiringEvents: Events that expire together are deleted in one transaction of etcd, so their
// deletions have one resourceVersion. Each is delivered, ends its condition and leaves the cache.
func TestExpiringEvents(t *testing.T) {
	t.Parallel()
	const n = 400
	// The API server gives one lease to the Events of a twentieth of the time.
	s := sandboxtest.New(t, sandboxtest.Options{APIServerArgs: []string{"--event-ttl=20s"}})
	ns := s.Namespace(t)
	r := routertest.Start(t, s.Kubeconfig(), fmt.Sprintf(`
sources: {events: {resource: v1/events, namespaces: %s}}
sinks: {out: {stdout: {}}}
routes:
  - {name: gone, from: events, ops: deleted, to: out}
  - {name: holds, from: events, when: object.reason == "Test", to: out}
`, ns))
	r.Ready(t)
	resource := s.Dynamic().Resource(schema.GroupVersionResource{Version: "v1", Resource: "events"}).Namespace(ns)
	var want []string
	var creators sync.WaitGroup
	for i := range n {
		name := fmt.Sprint("e-", i)
		subject := ns + "/" + name
		want = append(want, "holds entered "+subject, "holds left "+subject, "gone deleted "+subject)
		if i%8 == 0 {
			creators.Wait() // eight at a time
		}
		creators.Go(func() {
			_, err := resource.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "v1", "kind": "Event", "metadata": map[string]any{"name": name}, "reason": "Test",
				"involvedObject": map[string]any{"namespace": ns},
			}}, metav1.CreateOptions{})
			if err != nil {
				t.Error(err)
			}
		})
	}
	creators.Wait()
	events := r.Expect(t, want...)
	routertest.Exactly(t, routertest.Summary(events), want)
	groups := make(map[string]int)
	for _, e := range events {
		if e.Route == "gone" {
			groups[e.K8sResourceVersion]++
		}
	}
	if len(groups) > n/2 {
		t.Errorf("%d Events were deleted at %d resourceVersions: they did not expire together, so this shows nothing", n, len(groups))
	}
	for series, wants := range map[string]float64{
		`deltarouter_source_objects{source="events"}`: 0, `deltarouter_route_active_objects{route="holds"}`: 0, `deltarouter_source_relists_total`: 0,
	} {
		if got := r.Metric(t, series); got != wants {
			t.Errorf("%s is %v", series, got)
		}
	}
}
