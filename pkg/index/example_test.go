package index_test

import (
	"fmt"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/index"
)

// parsePod returns a pod of the namespace shop on a node.
func parsePod(name, node string) *event.Object {
	pod, err := event.ParseObject(&event.Resource{Kind: "Pod"}, fmt.Sprintf(`{"metadata": {"namespace": "shop", "name": %q}, "spec": {"nodeName": %q}}`, name, node))
	if err != nil {
		panic(err)
	}
	return pod
}

// The catalog answers look-ups by the names of the configuration.
func ExampleCatalog_Lookup() {
	byNode, err := index.Compile("object.spec.nodeName")
	if err != nil {
		panic(err)
	}
	store := index.NewStore(byNode)
	store.Put(parsePod("web-1", "n2"))
	store.Put(parsePod("web-0", "n1"))
	store.Put(parsePod("db-0", "n1"))
	catalog := index.NewCatalog()
	catalog.Add("pods", []*index.Store{store}, map[string]index.Spec{"byNode": byNode})

	fmt.Println(catalog.Lookup("pods", "byNode", "n1"))
	fmt.Println(catalog.Count("pods", index.ByNamespace, "shop"), catalog.Count("pods", "byNode", "n3"))
	// Output:
	// [shop/db-0 shop/web-0]
	// 3 0
}

// A mistake has its place in the text.
func ExampleCompile() {
	_, err := index.Compile("object.spec.nodeName", "objekt.metadata.labels.team")
	fmt.Println(err)
	// Output:
	// index "objekt.metadata.labels.team": 1:1: undeclared reference to 'objekt'; did you mean "object"?
}

func ExampleStore() {
	store := index.NewStore()
	store.Put(parsePod("web-0", "n1"))
	store.Put(parsePod("web-0", "n2")) // replaces it
	pod := store.Get(event.Key{Namespace: "shop", Name: "web-0"})
	fmt.Println(store.Len(), pod.Raw().Path("spec", "nodeName").Str())
	store.Delete(pod.Key())
	fmt.Println(store.Len())
	// Output:
	// 1 n2
	// 0
}
