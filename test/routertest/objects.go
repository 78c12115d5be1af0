package routertest

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// The most used resources.
var (
	ConfigMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	Pods       = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
)

// ConfigMap returns a ConfigMap with one entry of data and optional labels, given as key=value.
func ConfigMap(name, value string, labels ...string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": name}, "data": map[string]any{"value": value},
	}}
	set := make(map[string]string)
	for _, l := range labels {
		key, value, _ := strings.Cut(l, "=")
		set[key] = value
	}
	o.SetLabels(set)
	return o
}

// Objects is a client for one resource of one namespace. Its short methods end the test on an
// error.
type Objects struct {
	dynamic.ResourceInterface

	t *testing.T
}

// Use returns a client for one resource of one namespace.
func Use(t *testing.T, s *sandboxtest.Sandbox, resource schema.GroupVersionResource, namespace string) Objects {
	t.Helper()
	return Objects{s.Dynamic().Resource(resource).Namespace(namespace), t}
}

// Make creates an object.
func (o Objects) Make(object *unstructured.Unstructured) *unstructured.Unstructured {
	o.t.Helper()
	created, err := o.Create(o.t.Context(), object, metav1.CreateOptions{})
	must.Succeed(o.t, err)
	return created
}

// Change applies a merge patch and returns the new resourceVersion of the object.
func (o Objects) Change(name, patch string, subresources ...string) (version string) {
	o.t.Helper()
	object, err := o.Patch(o.t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...)
	must.Succeed(o.t, err)
	return object.GetResourceVersion()
}

// Version returns the resourceVersion of an object.
func (o Objects) Version(name string) string {
	o.t.Helper()
	object, err := o.Get(o.t.Context(), name, metav1.GetOptions{})
	must.Succeed(o.t, err)
	return object.GetResourceVersion()
}

// Remove deletes an object at once.
func (o Objects) Remove(name string) {
	o.t.Helper()
	now := int64(0)
	must.Succeed(o.t, o.Delete(o.t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &now}))
}

// Lists counts the requests that list a whole resource, in namespaces with a prefix: other tests
// use the sandbox at the same time.
func Lists(t *testing.T, s *sandboxtest.Sandbox, resource, namespaces string) int {
	t.Helper()
	return len(s.Requests(t, func(r sandboxtest.Request) bool {
		return r.Resource == resource && strings.HasPrefix(r.Namespace, namespaces) && (r.Verb == "list" && !IsProbe(r) || strings.Contains(r.URI, "sendInitialEvents=true"))
	}))
}

// IsProbe reports whether a list is a probe: the router lists a single object to get the
// resourceVersion of the API server.
func IsProbe(r sandboxtest.Request) bool {
	return strings.Contains(r.URI, "limit=1&") || strings.HasSuffix(r.URI, "limit=1")
}
