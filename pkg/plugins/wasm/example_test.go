package wasm_test

import (
	"fmt"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/wasm"
)

// A host asks for the files and the look-ups of a handler before it opens the handler. Check does
// not read the module.
func ExampleKind() {
	kind := wasm.Kind()
	node, _ := config.ParseNode("/etc/router/config.yaml", []byte(`module: plugins/enrich.wasm
allow: {lookup: [pods.byNode, nodes]}
`))
	fmt.Println(kind.Check(node).Err())
	fmt.Println(kind.(plugins.FileReader).Files(node))
	for _, grant := range kind.(plugins.LookupRequester).Lookups(node) {
		fmt.Printf("%s %q\n", grant.Source, grant.Index)
	}

	node, _ = config.ParseNode("config.yaml", []byte(`module: plugins/enrich.wasm
fields: ["status[phase"]
limits: {fuel: 0, instances: many}
`))
	fmt.Println(kind.Check(node))
	// Output:
	// <nil>
	// [/etc/router/plugins/enrich.wasm]
	// pods "byNode"
	// nodes ""
	// config.yaml:2:10: fields[0]: "status[phase" is not a path: write keys with dots between them, as in status.phase or metadata.labels["app.kubernetes.io/name"]
	// config.yaml:3:16: limits.fuel: must be at least 10k, not 0
	// config.yaml:3:30: limits.instances: must be a whole number, not "many"
}
