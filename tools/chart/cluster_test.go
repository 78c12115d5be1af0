package main

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/fake"
	"sigs.k8s.io/yaml"
)

// cluster has the objects that lookup finds.
type cluster []runtime.Object

// GetClientFor implements [engine.ClientProvider].
func (c cluster) GetClientFor(_, kind string) (dynamic.NamespaceableResourceInterface, bool, error) {
	client := fake.NewSimpleDynamicClient(runtime.NewScheme(), c...)
	if kind == "StatefulSet" {
		return client.Resource(schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "statefulsets"}), true, nil
	}
	return client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}), false, nil
}

// TestRefusedByCluster shows that a change which the cluster or Helm would refuse without a remedy
// is refused with one, and that others pass.
func TestRefusedByCluster(t *testing.T) {
	const (
		config     = "config: {sources: {p: {resource: v1/pods}}, sinks: {o: {stdout: {}}}, routes: [{name: r, from: p, to: o}]}\n"
		set        = "{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: deltarouter, namespace: chart-release}, spec: "
		volume     = set + "{volumeClaimTemplates: [{spec: {storageClassName: fast, resources: {requests: {storage: 16Gi}}}}]}}"
		definition = "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: routes.deltarouter.io"
		create     = "customResourceDefinitions: {create: true}"
	)
	for name, tt := range map[string]struct{ object, values, want string }{
		"the same size":           {volume, "", ""},
		"the same size in Mi":     {volume, "state: {size: 16384Mi}", ""},
		"a larger volume":         {volume, "state: {size: 32Gi}", `state.size is 32Gi, but the StatefulSet has 16Gi, and Kubernetes does not change it. To enlarge the volume, run kubectl -n chart-release patch pvc state-deltarouter-0 -p '{"spec":{"resources":{"requests":{"storage":"32Gi"}}}}' and kubectl -n chart-release delete statefulset deltarouter --cascade=orphan`},
		"the same class":          {volume, "state: {storageClassName: fast}", ""},
		"another class":           {volume, "state: {storageClassName: slow}", `state.storageClassName is "slow", but the volume has "fast"`},
		"no volume any more":      {volume, "state: {emptyDir: true}", "state.emptyDir or fleet.enabled changes"},
		"a volume":                {set + "{}}", "", "state.emptyDir or fleet.enabled changes"},
		"no volume":               {set + "{}}", "state: {emptyDir: true}", ""},
		"a definition of kubectl": {definition + "}}", create, "kubectl annotate crd routes.deltarouter.io meta.helm.sh/release-name=deltarouter meta.helm.sh/release-namespace=chart-release"},
		"not wanted":              {definition + "}}", "", ""},
		"of this release":         {definition + ", annotations: {meta.helm.sh/release-name: deltarouter, meta.helm.sh/release-namespace: chart-release}}}", create, ""},
		"of another release":      {definition + ", annotations: {meta.helm.sh/release-name: a, meta.helm.sh/release-namespace: b}}}", create, "belongs to the release a in the namespace b: set customResourceDefinitions.create to false here"},
	} {
		t.Run(name, func(t *testing.T) {
			object, values := &unstructured.Unstructured{}, map[string]any{}
			if err := yaml.Unmarshal([]byte(tt.object), &object.Object); err != nil {
				t.Fatal(err)
			}
			if err := yaml.Unmarshal([]byte(config+tt.values), &values); err != nil {
				t.Fatal(err)
			}
			_, err := renderWith(cluster{object}, namespace, values)
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}
