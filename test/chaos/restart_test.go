package chaos

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// TestRestartReplaysNothing makes no change while the router is down. Nothing may be listed or
// delivered.
func TestRestartReplaysNothing(t *testing.T) {
	// Guarantee: restart-resumes, restart-flood, list-for-version
	t.Parallel()
	s, ns := sandboxtest.StartNamespace(t)
	maps := routertest.Use(t, s, routertest.ConfigMaps, ns)
	for i := range 50 {
		maps.Make(routertest.ConfigMap(fmt.Sprintf("m-%d", i), "1"))
	}
	file := routertest.Install(t, s.Kubeconfig(), fmt.Sprintf(`
sources:
  maps: {resource: v1/configmaps, namespaces: %s, indexes: {byValue: object.data.value}}
sinks: {out: {stdout: {}}}
routes:
  - {name: all, from: maps, existing: deliver, to: out}
  - {name: same, from: maps, ops: updated, filter: 'count("byValue", object.data.value) > 1', emit: '{"n": count("byValue", "1")}', to: out}
`, ns))
	for _, end := range []string{"stopped", "killed"} {
		r := routertest.StartFile(t, file)
		r.Ready(t)
		before := routertest.Lists(t, s, "configmaps", ns)
		maps.Make(routertest.ConfigMap("mark-"+end, "1"))
		r.Expect(t, "all added "+ns+"/mark-"+end)
		if end == "stopped" {
			if code := r.Stop(t); code != 0 {
				t.Fatalf("exit code %d", code)
			}
		} else {
			r.Saved(t)
			r.Kill(t)
		}

		again := routertest.StartFile(t, file)
		again.Ready(t)
		maps.Change("mark-"+end, `{"metadata":{"labels":{"now":"changed"}}}`)
		events := again.Expect(t, "all updated "+ns+"/mark-"+end, "same updated "+ns+"/mark-"+end)
		if len(events) != 2 {
			t.Errorf("%s: got %q, want two events", end, routertest.Summary(events))
		}
		if n := routertest.Lists(t, s, "configmaps", ns) - before; n != 0 {
			t.Errorf("%s: %d lists, want none", end, n)
		}
		again.Kill(t)
	}
}

// TestDeletedWhileDown makes 1,000 deletes and 1,000 recreations while the router is down. They
// must be delivered exactly, deletes with their last state: 2,000 deleted, 1,000 added.
func TestDeletedWhileDown(t *testing.T) {
	// Guarantee: deleted-while-down, old-ignored, deletes-unnoticed
	t.Parallel()
	const n = 1000
	s, ns := sandboxtest.StartNamespace(t)
	maps := routertest.Use(t, s, routertest.ConfigMaps, ns)
	createMany(t, s, ns, "gone", n)
	before := createMany(t, s, ns, "again", n)
	file := routertest.Install(t, s.Kubeconfig(), fmt.Sprintf(watchConfigMaps, ns)+"sinks: {out: {stdout: {}}}\n")
	r := routertest.StartFile(t, file)
	r.Ready(t)
	r.Stop(t)
	each(t, 2*n, func(i int) error {
		if i < n {
			return maps.Delete(t.Context(), fmt.Sprintf("gone-%d", i), metav1.DeleteOptions{})
		}
		again := fmt.Sprintf("again-%d", i-n)
		if err := maps.Delete(t.Context(), again, metav1.DeleteOptions{}); err != nil {
			return err
		}
		_, err := maps.Create(t.Context(), routertest.ConfigMap(again, "2"), metav1.CreateOptions{})
		return err
	})
	var want []string
	for i := range n {
		gone, again := fmt.Sprintf("%s/gone-%d", ns, i), fmt.Sprintf("%s/again-%d", ns, i)
		want = append(want, "all deleted "+gone, "all deleted "+again, "all added "+again)
	}
	r = routertest.StartFile(t, file)
	r.Expect(t, want...)
	maps.Make(routertest.ConfigMap("last", "1"))
	events := r.Expect(t, append(want, "all added "+ns+"/last")...)
	routertest.Exactly(t, routertest.Summary(events), append(want, "all added "+ns+"/last"))
	first := make(map[string]routertest.Event) // first event of each subject
	for _, e := range events {
		if strings.HasSuffix(e.Type, "deleted") && valueOf(t, e, "object") != "1" {
			t.Errorf("%s without its last state: %s", e, e.Data)
		}
		if _, ok := first[e.Subject]; !ok {
			first[e.Subject] = e
		}
	}
	for i, uid := range before {
		if e := first[fmt.Sprintf("%s/again-%d", ns, i)]; !strings.HasSuffix(e.Type, "deleted") || e.K8sUID != uid {
			t.Errorf("%s of %s came first, want the delete of %s", e, e.K8sUID, uid)
		}
	}
}

// TestPendingSurvivesAKill shows that pending deltas of an unavailable sink survive a crash.
func TestPendingSurvivesAKill(t *testing.T) {
	// Guarantee: backlog-kept
	t.Parallel()
	s, ns := sandboxtest.StartNamespace(t)
	h := newReceiver(t, answer(http.StatusServiceUnavailable))
	file := routertest.Install(t, s.Kubeconfig(), fmt.Sprintf(`
sources:
  maps: {resource: v1/configmaps, namespaces: %s}
sinks:
  out: {stdout: {}}
  hook: {webhook: {url: %q}}
routes:
  - {name: both, from: maps, to: [out, hook], retry: {backoff: 10ms, max: 100ms}}
`, ns, h.URL))
	r := routertest.StartFile(t, file)
	r.Ready(t)
	maps := routertest.Use(t, s, routertest.ConfigMaps, ns)
	maps.Make(routertest.ConfigMap("a", "1"))
	maps.Change("a", `{"data":{"value":"2"}}`)
	maps.Remove("a")
	r.Expect(t, "both added "+ns+"/a")
	r.Saved(t)
	r.Kill(t)

	h.now(answer(http.StatusOK))
	again := routertest.StartFile(t, file)
	routertest.Poll(t, "the webhook to get what was owed", func() bool { return h.count() >= 3 })
	checkOrder(t, h.delivered(), ns+"/a", "both added "+ns+"/a", "both updated "+ns+"/a", "both deleted "+ns+"/a")
	for _, e := range again.Events() {
		if e.Type == "io.deltarouter.added" {
			t.Errorf("the sink that had it got it again: %s", e)
		}
	}
}
