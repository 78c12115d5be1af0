package kubernetes_test

import (
	"fmt"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/kubernetes"
)

// A grant needs rights at the API server. An installer can make a Role of them.
func ExampleKind() {
	kind := kubernetes.Kind()
	node, _ := config.ParseNode("config.yaml", []byte(`allow:
  - {resource: v1/pods, namespaces: [shop], verbs: [evict, merge]}
  - {resource: v1/configmaps, namespaces: [ops], verbs: [apply]}
`))
	fmt.Println(kind.Check(node).Err())
	for _, needed := range kind.(plugins.RightsRequester).Rights(node) {
		if !needed.Optional {
			fmt.Println(needed.Right)
		}
	}

	node, _ = config.ParseNode("config.yaml", []byte(`allow: [{resource: apps/v1/deployments, verbs: [evict]}]
maxDeletes: many
`))
	fmt.Println(kind.Check(node))
	// Output:
	// <nil>
	// get /api/v1
	// create pods/eviction in namespace "shop"
	// patch pods in namespace "shop"
	// get /api/v1
	// patch configmaps in namespace "ops"
	// create configmaps in namespace "ops"
	// config.yaml:1:48: allow[0].verbs: evict is for v1/pods
	// config.yaml:2:13: maxDeletes: must be a whole number and a time from 1s to 24h, as in 10/1m, or none
}
