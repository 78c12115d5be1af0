package informer_test

import (
	"testing"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/informer"
)

// TestKeep: an object from a file is what a watch would make of it.
func TestKeep(t *testing.T) {
	const pod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","managedFields":[1]},"spec":{"x":1},"status":{"y":2,"z":3}}`
	for _, c := range []struct {
		source config.Source
		text   string
		want   string // the object, or the error
	}{
		{config.Source{}, pod, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"x":1},"status":{"y":2,"z":3}}`},
		{config.Source{ManagedFields: true, Drop: []string{"status.y", "spec"}}, pod, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","managedFields":[1]},"status":{"z":3}}`},
		{config.Source{Cache: config.CacheMetadata}, pod, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a"}}`},
		{config.Source{Cache: config.CacheMetadata}, `{"spec":{}}`, "not a Kubernetes object: metadata.name is missing or not a string"},
		{config.Source{}, `{"metadata":{}}`, "not a Kubernetes object: metadata.name is missing or not a string"},
		{config.Source{}, `{"metadata":`, "unexpected end of JSON"},
		{config.Source{}, `{} x`, "invalid JSON at byte 3: text after the value"},
	} {
		c.source.Resource = "v1/pods"
		specs, err := informer.SpecsOf(&c.source)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if o, err := informer.Keep(specs[0], "prod", c.text); err != nil {
			got = err.Error()
		} else if got = string(o.JSON()); o.Resource().Cluster != "prod" {
			t.Errorf("of cluster %q", o.Resource().Cluster)
		}
		if got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.text, got, c.want)
		}
	}
}
