package index_test

import (
	"fmt"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"pgregory.net/rapid"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/index"
	"github.com/deltarouter/deltarouter/test/must"
)

// TestScopedCatalog: for any objects, a scoped catalog finds the objects that the whole catalog
// finds, without those outside of the scope.
func TestScopedCatalog(t *testing.T) {
	// Guarantee: include-scope
	resources := map[string]*event.Resource{}
	for _, name := range []string{"pods", "nodes", "namespaces"} {
		resources[name] = &event.Resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: name}}
	}
	rapid.Check(t, func(rt *rapid.T) {
		f := newFixture(t, 3, map[string]string{"byUser": `object.metadata.annotations["users"].split(",")`})
		var objects []*event.Object
		for i := range rapid.IntRange(0, 30).Draw(rt, "objects") {
			resource := rapid.SampledFrom([]string{"pods", "pods", "pods", "nodes", "namespaces"}).Draw(rt, "resource")
			namespace := rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(rt, "namespace")
			text := fmt.Sprintf(`{"metadata":{"namespace":%q,"name":"p%d"`, namespace, i%7)
			if resource != "pods" {
				text = fmt.Sprintf(`{"metadata":{"name":%q`, namespace)
			}
			text += fmt.Sprintf(`,"annotations":{"users":%q},"ownerReferences":[{"uid":"o"}]}}`, rapid.SampledFrom([]string{"u", "v", "u,v"}).Draw(rt, "users"))
			o, err := event.ParseObject(resources[resource], text)
			must.Succeed(t, err)
			f.stores[slices.Index([]string{"pods", "nodes", "namespaces"}, resource)].Put(o)
			objects = append(objects, o)
		}
		scope := &config.Scope{Namespaces: rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "nowhere", "*"}), 0, 3).Draw(rt, "namespaces")}
		scoped := index.NewScopedCatalog(scope)
		scoped.Add("pods", f.stores, f.byName)
		for _, query := range [][2]string{
			{"", ""},
			{"byUser", "u"},
			{"byUser", "none"},
			{"unknown", "u"},
			{"name", "p1"},
			{"name", "a"},
			{"owner", "o"},
			{"namespace", "a"},
			{"namespace", "c"},
			{"namespace", ""},
		} {
			want := slices.DeleteFunc(f.catalog.Lookup("pods", query[0], query[1]), func(o *event.Object) bool { return !scope.Sees(o.Home()) })
			// Equal keys of different resources have no order.
			differ := func(got []*event.Object) bool {
				return len(got) != len(want) || slices.ContainsFunc(got, func(o *event.Object) bool { return !slices.Contains(want, o) })
			}
			if got := scoped.Lookup("pods", query[0], query[1]); differ(got) {
				rt.Fatalf("%q finds %v in %q, want %v", query, got, scope.Namespaces, want)
			}
			if got := scoped.Count("pods", query[0], query[1]); got != len(want) {
				rt.Fatalf("%q counts %d in %q, want %d", query, got, scope.Namespaces, len(want))
			}
			var collected []*event.Object
			for store := range f.stores {
				collected = scoped.Collect(collected, "pods", store, query[0], query[1])
			}
			if differ(collected) {
				rt.Fatalf("%q collects %v in %q, want %v", query, collected, scope.Namespaces, want)
			}
		}
		for _, o := range objects {
			key, sees := o.Key(), scope.Sees(o.Home())
			if got := scoped.Get("pods", key.Namespace, key.Name); sees && got == nil || got != nil && !scope.Sees(got.Home()) {
				rt.Fatalf("%s is %v in %q", key, got, scope.Namespaces)
			}
			if scoped.Has("pods", "owner", "o", o) != sees {
				rt.Fatalf("the index has %s: %t in %q", key, !sees, scope.Namespaces)
			}
		}
	})
}
