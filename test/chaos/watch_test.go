package chaos

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// TestGapAfterCompaction changes objects and compacts etcd while the watch is down. Only the
// changes may be delivered.
func TestGapAfterCompaction(t *testing.T) {
	// Guarantee: gap-net-change, delete-and-recreate, unchanged-updates
	t.Parallel()
	s := sandboxtest.Borrow(t)
	ns := s.Namespace(t)
	maps := routertest.Use(t, s, routertest.ConfigMaps, ns)
	for _, name := range []string{"same", "changed", "gone", "recreated"} {
		maps.Make(routertest.ConfigMap(name, "1"))
	}
	proxy := s.Proxy(t)
	r := routertest.Start(t, proxy.Kubeconfig(), fmt.Sprintf(watchConfigMaps, ns))
	r.Ready(t)

	proxy.Refuse()
	maps.Change("changed", `{"data":{"value":"2"}}`)
	maps.Remove("gone")
	maps.Remove("recreated")
	maps.Make(routertest.ConfigMap("recreated", "2"))
	maps.Make(routertest.ConfigMap("new", "1"))
	// The watch cache of the API server must be lost too.
	s.StopAPIServer(t)
	s.CompactEtcd(t)
	s.StartAPIServer(t)
	proxy.Unblock()

	n := ns + "/"
	want := []string{
		"all updated " + n + "changed", "all deleted " + n + "gone",
		"all deleted " + n + "recreated", "all added " + n + "recreated", "all added " + n + "new",
	}
	r.Expect(t, want...)
	maps.Make(routertest.ConfigMap("last", "1"))
	got := routertest.Summary(r.Expect(t, "all added "+n+"last"))
	if len(got) != len(want)+1 {
		t.Errorf("got %q, want %q and the last", got, want)
	}
	if i, j := slices.Index(got, "all deleted "+n+"recreated"), slices.Index(got, "all added "+n+"recreated"); i > j {
		t.Error("recreated was added before it was deleted")
	}
	for _, e := range routertest.About(r.Events(), n+"gone") {
		if !strings.Contains(string(e.Data), `"stale":true`) {
			t.Errorf("a delete that was inferred does not say so: %s", e.Data)
		}
	}
}

func TestAPIServerKilled(t *testing.T) {
	// Guarantee: at-least-once
	t.Parallel()
	s := sandboxtest.Borrow(t)
	ns := s.Namespace(t)
	maps := routertest.Use(t, s, routertest.ConfigMaps, ns)
	maps.Make(routertest.ConfigMap("same", "1"))
	r := routertest.Start(t, s.Kubeconfig(), fmt.Sprintf(watchConfigMaps, ns))
	r.Ready(t)
	maps.Make(routertest.ConfigMap("before", "1"))
	r.Expect(t, "all added "+ns+"/before")

	s.KillAPIServer(t)
	s.StartAPIServer(t)
	maps.Make(routertest.ConfigMap("after", "1"))
	maps.Remove("before")
	got := routertest.Summary(r.Expect(t, "all added "+ns+"/after", "all deleted "+ns+"/before"))
	if len(got) != 3 {
		t.Errorf("got %q, want three events: an unchanged object is not delivered again", got)
	}
}

// TestStopWhileTheServerIsDead shows that waits of the router end with their context; those of
// client-go do not.
func TestStopWhileTheServerIsDead(t *testing.T) {
	t.Parallel()
	s, ns := sandboxtest.StartNamespace(t)
	proxy := s.Proxy(t)
	r := routertest.Start(t, proxy.Kubeconfig(), fmt.Sprintf(watchConfigMaps, ns))
	r.Ready(t)
	proxy.Refuse()
	if code := r.Stop(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
}
