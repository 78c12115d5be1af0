package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// TestGapAfterCompaction: while the watch is down, objects change and etcd forgets the history. Only what changed is delivered.
func TestGapAfterCompaction(t *testing.T) {
	s := sandboxtest.New(t, sandboxtest.Options{})
	ns := s.Namespace(t)
	maps := use(t, s, configMaps, ns)
	for _, name := range []string{"same", "changed", "gone", "recreated"} {
		maps.create(configMap(name, "1"))
	}
	proxy := s.Proxy(t)
	r := start(t, proxy.Kubeconfig(), fmt.Sprintf(watchConfigMaps, ns))
	r.ready(t)

	proxy.Refuse()
	maps.patch("changed", `{"data":{"value":"2"}}`)
	maps.remove("gone")
	maps.remove("recreated")
	maps.create(configMap("recreated", "2"))
	maps.create(configMap("new", "1"))
	// The watch cache of the API server must forget too.
	s.StopAPIServer(t)
	s.CompactEtcd(t)
	s.StartAPIServer(t)
	proxy.Unblock()

	n := ns + "/"
	want := []string{
		"all updated " + n + "changed", "all deleted " + n + "gone",
		"all deleted " + n + "recreated", "all added " + n + "recreated", "all added " + n + "new",
	}
	r.expect(t, want...)
	maps.create(configMap("last", "1"))
	got := summary(r.expect(t, "all added "+n+"last"))
	if len(got) != len(want)+1 {
		t.Errorf("got %q, want %q and the last", got, want)
	}
	if i, j := slices.Index(got, "all deleted "+n+"recreated"), slices.Index(got, "all added "+n+"recreated"); i > j {
		t.Error("recreated was added before it was deleted")
	}
	for _, e := range about(r.all(), n+"gone") {
		if !strings.Contains(string(e.Data), `"stale":true`) {
			t.Errorf("a delete that was inferred does not say so: %s", e.Data)
		}
	}
}

func TestAPIServerKilled(t *testing.T) {
	s := sandboxtest.New(t, sandboxtest.Options{})
	ns := s.Namespace(t)
	maps := use(t, s, configMaps, ns)
	maps.create(configMap("same", "1"))
	r := start(t, s.Kubeconfig(), fmt.Sprintf(watchConfigMaps, ns))
	r.ready(t)
	maps.create(configMap("before", "1"))
	r.expect(t, "all added "+ns+"/before")

	s.KillAPIServer(t)
	s.StartAPIServer(t)
	maps.create(configMap("after", "1"))
	maps.remove("before")
	got := summary(r.expect(t, "all added "+ns+"/after", "all deleted "+ns+"/before"))
	if len(got) != 3 {
		t.Errorf("got %q, want three events: an unchanged object is not delivered again", got)
	}
}

// TestStopWhileTheServerIsDead: client-go's waits ignore contexts; ours do not.
func TestStopWhileTheServerIsDead(t *testing.T) {
	s := sandboxtest.Start(t)
	ns := s.Namespace(t)
	proxy := s.Proxy(t)
	r := start(t, proxy.Kubeconfig(), fmt.Sprintf(watchConfigMaps, ns))
	r.ready(t)
	proxy.Refuse()
	if code := r.stop(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

func TestCRDComesAndGoes(t *testing.T) {
	s := sandboxtest.New(t, sandboxtest.Options{})
	ns := s.Namespace(t)
	r := start(t, s.Kubeconfig(), `
sources:
  gizmos: {resource: example.org/v1/gizmos}
  maps: {resource: v1/configmaps}
routes:
  - {name: gizmos, from: gizmos, to: out}
`)
	if body := r.ready(t); !strings.Contains(body, "gizmos") {
		t.Errorf("/readyz does not name the source whose resource is missing:\n%s", body)
	}
	s.Apply(t, ns, gizmoDefinition)
	s.Apply(t, ns, "apiVersion: example.org/v1\nkind: Gizmo\nmetadata: {name: g}\nspec: {size: 1}\n---\n")
	r.expect(t, "gizmos added "+ns+"/g")

	definitions := s.Dynamic().Resource(definitionResource)
	remove(t, definitions, "gizmos.example.org")
	r.expect(t, "gizmos deleted "+ns+"/g")

	poll(t, "the definition to be gone", func() bool { return !exists(t, definitions, "gizmos.example.org") })
	s.Apply(t, ns, gizmoDefinition)
	s.Apply(t, ns, "apiVersion: example.org/v1\nkind: Gizmo\nmetadata: {name: again}\nspec: {size: 1}\n---\n")
	r.expect(t, "gizmos added "+ns+"/again")
}

func TestOneForbiddenOfThree(t *testing.T) {
	s := sandboxtest.Start(t)
	ns := s.Namespace(t)
	s.Grant(t, ns, "", []string{"configmaps", "services"}, []string{"get", "list", "watch"})
	r := start(t, s.LimitedKubeconfig(), fmt.Sprintf(`
sources:
  maps: {resource: v1/configmaps, namespaces: %[1]s}
  services: {resource: v1/services, namespaces: %[1]s}
  pods: {resource: v1/pods, namespaces: %[1]s}
routes:
  - {name: all, from: [maps, services, pods], to: out}
`, ns))
	body := ""
	poll(t, "the forbidden source in /readyz", func() bool {
		code := 0
		code, body = r.get(t, "/readyz")
		return code == http.StatusOK && strings.Contains(body, "forbidden")
	})
	if !strings.Contains(body, "pods") {
		t.Errorf("/readyz does not name the source:\n%s", body)
	}
	use(t, s, configMaps, ns).create(configMap("a", "1"))
	r.expect(t, "all added "+ns+"/a")

	s.Grant(t, ns, "", []string{"pods"}, []string{"get", "list", "watch"})
	poll(t, "the source to be allowed", func() bool { _, body = r.get(t, "/readyz"); return !strings.Contains(body, "forbidden") })
	s.Apply(t, ns, pod("late", "n1", "", 0))
	r.expect(t, "all added "+ns+"/late")
}
