package e2e

import (
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/deltarouter/deltarouter/test/must"
)

// pod returns the manifest of a pod on a node, with the annotation users unless that is empty.
func pod(name, node, users string, restarts int) string {
	annotations := "{}"
	if users != "" {
		annotations = fmt.Sprintf("{users: %q}", users)
	}
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s, annotations: %s}
spec: {nodeName: %s, containers: [{name: web, image: "example.com/web:1"}]}
status: {phase: Running, containerStatuses: [{name: web, image: i, imageID: "", ready: true, restartCount: %d}]}
---
`, name, annotations, node, restarts)
}

var definitionResource = schema.GroupVersionResource{ //nolint:gochecknoglobals // a constant
	Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
}

const gizmoDefinition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gizmos.example.org}
spec:
  group: example.org
  scope: Namespaced
  names: {plural: gizmos, singular: gizmo, kind: Gizmo, listKind: GizmoList}
  versions:
    - name: v1
      served: true
      storage: true
      schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {size: {type: integer}}}}}}
---
`

func remove(t *testing.T, objects dynamic.ResourceInterface, name string) {
	t.Helper()
	must.Succeed(t, objects.Delete(t.Context(), name, metav1.DeleteOptions{}))
}

func exists(t *testing.T, objects dynamic.ResourceInterface, name string) bool {
	t.Helper()
	_, err := objects.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	return err == nil
}
