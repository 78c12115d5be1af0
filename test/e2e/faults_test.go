package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

func TestCRDComesAndGoes(t *testing.T) {
	s := sandboxtest.New(t, sandboxtest.Options{})
	ns := s.Namespace(t)
	r := routertest.Start(t, s.Kubeconfig(), `
sources:
  gizmos: {resource: example.org/v1/gizmos}
  maps: {resource: v1/configmaps}
routes:
  - {name: gizmos, from: gizmos, to: out}
`)
	if body := r.Ready(t); !strings.Contains(body, "gizmos") {
		t.Errorf("/readyz does not name the source whose resource is missing:\n%s", body)
	}
	s.Apply(t, ns, gizmoDefinition)
	s.Apply(t, ns, "apiVersion: example.org/v1\nkind: Gizmo\nmetadata: {name: g}\nspec: {size: 1}\n---\n")
	r.Expect(t, "gizmos added "+ns+"/g")

	definitions := s.Dynamic().Resource(definitionResource)
	remove(t, definitions, "gizmos.example.org")
	r.Expect(t, "gizmos deleted "+ns+"/g")

	routertest.Poll(t, "the definition to be gone", func() bool { return !exists(t, definitions, "gizmos.example.org") })
	s.Apply(t, ns, gizmoDefinition)
	s.Apply(t, ns, "apiVersion: example.org/v1\nkind: Gizmo\nmetadata: {name: again}\nspec: {size: 1}\n---\n")
	r.Expect(t, "gizmos added "+ns+"/again")
}

func TestOneForbiddenOfThree(t *testing.T) {
	s := sandboxtest.Start(t)
	ns := s.Namespace(t)
	s.Grant(t, ns, "", []string{"configmaps", "services"}, []string{"get", "list", "watch"})
	r := routertest.Start(t, s.LimitedKubeconfig(), fmt.Sprintf(`
sources:
  maps: {resource: v1/configmaps, namespaces: %[1]s}
  services: {resource: v1/services, namespaces: %[1]s}
  pods: {resource: v1/pods, namespaces: %[1]s}
routes:
  - {name: all, from: [maps, services, pods], to: out}
`, ns))
	body := ""
	routertest.Poll(t, "the forbidden source in /readyz", func() bool {
		code := 0
		code, body = r.Get(t, "/readyz")
		return code == http.StatusOK && strings.Contains(body, "forbidden")
	})
	if !strings.Contains(body, "pods") {
		t.Errorf("/readyz does not name the source:\n%s", body)
	}
	routertest.Use(t, s, routertest.ConfigMaps, ns).Make(routertest.ConfigMap("a", "1"))
	r.Expect(t, "all added "+ns+"/a")

	s.Grant(t, ns, "", []string{"pods"}, []string{"get", "list", "watch"})
	routertest.Poll(t, "the source to be allowed", func() bool { _, body = r.Get(t, "/readyz"); return !strings.Contains(body, "forbidden") })
	s.Apply(t, ns, pod("late", "n1", "", 0))
	r.Expect(t, "all added "+ns+"/late")
}
