package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// TestSchemasOfTheCluster: the fields of a custom resource are checked by its definition, by `check -connect` and when the router starts;
// without a cluster they are not known, which is a warning.
func TestSchemasOfTheCluster(t *testing.T) {
	s := sandboxtest.New(t, sandboxtest.Options{})
	ns := s.Namespace(t)
	s.Apply(t, ns, gizmoDefinition)
	config := func(filter string) string {
		return routertest.Install(t, s.Kubeconfig(), fmt.Sprintf(`sinks: {out: {stdout: {}}}
sources:
  gizmos: {resource: example.org/v1/gizmos, namespaces: %s}
  pods: {resource: v1/pods}
routes:
  - {name: gizmos, from: gizmos, filter: %q, to: out}
  - {name: pods, from: pods, filter: 'list("gizmos").exists(g, g.spec.size == 1)', to: out}
`, ns, filter))
	}
	check := func(file string, args ...string) string {
		out, _ := routertest.Command(append([]string{"check", "-config", file}, args...)...).CombinedOutput()
		return string(out)
	}
	const mistake = `org.example.v1.Gizmo.spec has no field "sise"; did you mean "size"?`
	wrong, right := config("object.spec.sise == 1"), config("object.spec.size == 1")
	// The definition may have been published a moment ago.
	routertest.Poll(t, "the mistake to be found", func() bool { return strings.Contains(check(wrong, "-connect"), mistake) })
	if out := check(wrong); !strings.Contains(out, ": ok") || !strings.Contains(out, "warning: sources.gizmos.resource: what example.org/v1/gizmos look like is not known") {
		t.Errorf("without a cluster: %s", out)
	}
	if out := check(right, "-connect"); !strings.Contains(out, ": ok") || strings.Contains(out, "not known") {
		t.Errorf("with a cluster: %s", out)
	}
	if out, err := routertest.Command("-config", wrong).CombinedOutput(); err == nil || !strings.Contains(string(out), mistake) {
		t.Errorf("the router started: %v %s", err, out)
	}
	r := routertest.StartFile(t, right)
	r.Ready(t)
	s.Apply(t, ns, "apiVersion: example.org/v1\nkind: Gizmo\nmetadata: {name: small}\nspec: {size: 2}\n---\n")
	s.Apply(t, ns, "apiVersion: example.org/v1\nkind: Gizmo\nmetadata: {name: g}\nspec: {size: 1}\n---\n")
	r.Expect(t, "gizmos added "+ns+"/g")
}
