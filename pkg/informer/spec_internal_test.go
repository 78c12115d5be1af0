package informer

import (
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/informer/internal/wire"
	"github.com/deltarouter/deltarouter/test/must"
)

func podSpec() *Spec {
	return &Spec{Resource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}}
}

func podResource() *event.Resource {
	return &event.Resource{GroupVersionResource: podSpec().Resource, Cluster: "test", Kind: "Pod"}
}

func TestObject(t *testing.T) {
	// Guarantee: secrets-redacted
	secrets := Spec{Resource: schema.GroupVersionResource{Version: "v1", Resource: "secrets"}}
	open := secrets
	open.Secrets, open.ManagedFields = true, true
	dropped := secrets
	dropped.Drop, _ = JoinDrop([]string{`metadata.annotations["cert-manager.io/issuer-name"]`, "metadata.annotations.c"})
	drops := *podSpec()
	drops.Drop, _ = JoinDrop([]string{"status", `metadata.annotations["a.b/c"]`, "spec.containers.env"})
	metadata := *podSpec()
	metadata.Cache = config.CacheMetadata
	const secret = `{"kind":"Secret","apiVersion":"v1","metadata":{"name":"s","annotations":{"kubectl.kubernetes.io/last-applied-configuration":"x","kapp.k14s.io/original":"x","cert-manager.io/issuer-name":"y","other":{"x":"z"}},"managedFields":[]},"data":{"k":"dg=="},"stringData":{"k":"v"},"type":"Opaque"}`
	tests := []struct {
		name       string
		spec       Spec
		text, want string
	}{
		{"kind is put in", *podSpec(), ` {"metadata":{"name":"a"}} `, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a"}}`},
		{"apiVersion is put in", *podSpec(), `{ "kind":"Pod","metadata":{"name":"a"}}`, `{"apiVersion":"v1", "kind":"Pod","metadata":{"name":"a"}}`},
		{"managedFields first", *podSpec(), `{"kind":"Pod","apiVersion":"v1","metadata":{"managedFields":[{}],"name":"a"}}`, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a"}}`},
		{"secret", secrets, secret, `{"kind":"Secret","apiVersion":"v1","metadata":{"name":"s","annotations":{"cert-manager.io/issuer-name":"y"}},"type":"Opaque"}`},
		{
			"secret, and an annotation dropped", dropped, `{"kind":"Secret","apiVersion":"v1","metadata":{"annotations":{"b":"x","cert-manager.io/issuer-name":"y","cert-manager.io/issuer-kind":"z"},"name":"s"}}`,
			`{"kind":"Secret","apiVersion":"v1","metadata":{"annotations":{"cert-manager.io/issuer-kind":"z"},"name":"s"}}`,
		},
		{"secret, asked for", open, secret, secret},
		{
			"drop", drops,
			`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","annotations":{"a.b/c":"1"}},"spec":{"containers":[{"name":"x","env":[1]},{"env":[],"name":"y"}]},"status":{"x":1}}`,
			`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","annotations":{}},"spec":{"containers":[{"name":"x"},{"name":"y"}]}}`,
		},
		{"metadata", metadata, `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"a"}}`, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a"}}`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			resource := podResource()
			if test.spec.Resource.Resource == "secrets" {
				resource.Kind = "Secret"
			}
			o, err := wire.NewDecoder(test.spec.format(), resource).Keep(test.text)
			must.Succeed(t, err)
			if got := string(o.JSON()); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

func TestDropPaths(t *testing.T) {
	for path, want := range map[string][]string{
		"status":                      {"status"},
		"status.conditions":           {"status", "conditions"},
		`metadata.annotations["a.b"]`: {"metadata", "annotations", "a.b"},
		`a['b'].c["d"]`:               {"a", "b", "c", "d"},
	} {
		if got, err := parsePath(path); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %q, %v", path, got, err)
		}
	}
	for _, path := range []string{"", ".", "a.", "a..b", "a[", `a["`, `a["b"`, "a[b]", "kind", "metadata", "metadata.uid", `metadata["name"]`} {
		if _, err := JoinDrop([]string{path}); err == nil {
			t.Errorf("%s: no error", path)
		}
	}
}
