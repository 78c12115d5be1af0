package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// TestUnwatchable: check -connect names the sources that the API server cannot watch whatever the
// rights: a resource without the verbs list and watch, and a fieldSelector that it does not have.
func TestUnwatchable(t *testing.T) {
	t.Parallel()
	s, ns := sandboxtest.StartNamespace(t)
	file := routertest.Install(t, s.Kubeconfig(), fmt.Sprintf(`sinks: {out: {stdout: {}}}
sources:
  bindings: {resource: v1/bindings, namespaces: %[1]s}
  fields: {resource: v1/pods, namespaces: %[1]s, fieldSelector: spec.priority=1}
  named: {resource: v1/pods, namespaces: %[1]s, fieldSelector: metadata.name=a}
  right: {resource: v1/pods, fieldSelector: "spec.nodeName=a,status.phase!=Failed"}
routes:
  - {name: r, from: [bindings, fields, named, right], to: out}
`, ns))
	_, said, code := checkConnect(t, file)
	for _, want := range []string{
		"sources.bindings.resource: the API server cannot list and watch v1/bindings, its verbs are only create",
		"sources.fields.fieldSelector: the API server does not have this selector for v1/pods: ", "field label not supported: spec.priority",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("it does not say %q", want)
		}
	}
	if code != 2 || strings.Contains(said, "sources.named") || strings.Contains(said, "sources.right") {
		t.Errorf("exit code %d", code)
	}
	if t.Failed() {
		t.Log(said)
	}
}
