package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

func TestCRDComesAndGoes(t *testing.T) {
	// Guarantee: missing-resource
	t.Parallel()
	s, ns := sandboxtest.StartNamespace(t)
	group := ns + ".example.org" // of this test alone
	definition := strings.ReplaceAll(gizmoDefinition, "example.org", group)
	r := routertest.Start(t, s.Kubeconfig(), `
sources:
  gizmos: {resource: `+group+`/v1/gizmos}
  maps: {resource: v1/configmaps}
routes:
  - {name: gizmos, from: gizmos, to: out}
`)
	if body := r.Ready(t); !strings.Contains(body, "gizmos") {
		t.Errorf("/readyz does not name the source whose resource is missing:\n%s", body)
	}
	s.Apply(t, ns, definition)
	s.Apply(t, ns, "apiVersion: "+group+"/v1\nkind: Gizmo\nmetadata: {name: g}\nspec: {size: 1}\n---\n")
	r.Expect(t, "gizmos added "+ns+"/g")

	definitions := s.Dynamic().Resource(definitionResource)
	remove(t, definitions, "gizmos."+group)
	r.Expect(t, "gizmos deleted "+ns+"/g")

	routertest.Poll(t, "the definition to be gone", func() bool { return !exists(t, definitions, "gizmos."+group) })
	s.Apply(t, ns, definition)
	s.Apply(t, ns, "apiVersion: "+group+"/v1\nkind: Gizmo\nmetadata: {name: again}\nspec: {size: 1}\n---\n")
	r.Expect(t, "gizmos added "+ns+"/again")
}

func TestOneForbiddenOfThree(t *testing.T) {
	t.Parallel()
	s, ns := sandboxtest.StartNamespace(t)
	s.Grant(t, ns, "", []string{"configmaps", "services"}, []string{"get", "list", "watch"})
	r := routertest.StartFile(t, routertest.InstallAPI(t, s.LimitedKubeconfig(), fmt.Sprintf(`
sinks: {out: {stdout: {}}}
sources:
  maps: {resource: v1/configmaps, namespaces: %[1]s}
  services: {resource: v1/services, namespaces: %[1]s}
  pods: {resource: v1/pods, namespaces: %[1]s}
routes:
  - {name: all, from: [maps, services, pods], to: out}
`, ns)))
	body := ""
	routertest.Poll(t, "the forbidden source in /readyz", func() bool {
		code := 0
		code, body = r.Get(t, "/readyz")
		return code == http.StatusOK && strings.Contains(body, "[-]sources/pods: not ok\n")
	})
	if body := r.Status(t); !strings.Contains(body, "sources/pods: ") || !strings.Contains(body, "forbidden") {
		t.Errorf("the status does not say why:\n%s", body)
	}
	routertest.Use(t, s, routertest.ConfigMaps, ns).Make(routertest.ConfigMap("a", "1"))
	r.Expect(t, "all added "+ns+"/a")

	s.Grant(t, ns, "", []string{"pods"}, []string{"get", "list", "watch"})
	routertest.Poll(t, "the source to be allowed", func() bool { _, body = r.Get(t, "/readyz"); return !strings.Contains(body, "sources/pods") })
	s.Apply(t, ns, pod("late", "n1", "", 0))
	r.Expect(t, "all added "+ns+"/late")
}

// TestVersionNotServed shows that the objects of a custom resource are not deleted when another
// version is served instead of the watched one, and that the watch goes on when the version is
// served again.
func TestVersionNotServed(t *testing.T) {
	// Guarantee: version-not-served
	t.Parallel()
	s, ns := sandboxtest.StartNamespace(t)
	group := ns + ".example.org" // of this test alone
	definition := strings.ReplaceAll(gizmoDefinition, "example.org", group)
	const both = "      schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {size: {type: integer}}}}}}\n"
	s.Apply(t, ns, strings.Replace(definition, both, both+"    - name: v2\n      served: true\n      storage: false\n"+both, 1))
	s.Apply(t, ns, "apiVersion: "+group+"/v1\nkind: Gizmo\nmetadata: {name: g}\nspec: {size: 1}\n---\n")
	r := routertest.Start(t, s.Kubeconfig(), `
sources: {gizmos: {resource: `+group+`/v1/gizmos}}
routes: [{name: gizmos, from: gizmos, to: out, existing: deliver}]
`)
	want := []string{"gizmos added " + ns + "/g"}
	r.Expect(t, want...)

	serve := func(served bool) {
		t.Helper()
		patch := fmt.Sprintf(`[{"op": "replace", "path": "/spec/versions/0/served", "value": %v}]`, served)
		if _, err := s.Dynamic().Resource(definitionResource).Patch(t.Context(), "gizmos."+group, types.JSONPatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	serve(false)
	routertest.Poll(t, "the reason in the log", func() bool {
		return strings.Contains(r.Log(), "version v1 is not served any more, v2 is: write resource: "+group+"/v2/gizmos")
	})
	serve(true)
	gizmos := s.Dynamic().Resource(schema.GroupVersionResource{Group: group, Version: "v2", Resource: "gizmos"}).Namespace(ns)
	if _, err := gizmos.Patch(t.Context(), "g", types.MergePatchType, []byte(`{"spec":{"size":2}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	want = append(want, "gizmos updated "+ns+"/g")
	routertest.Exactly(t, routertest.Summary(r.Expect(t, want...)), want)
}
