package process_test

import (
	"fmt"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/process"
)

// A host asks which program a handler would run before it opens the handler. The path is relative
// to the file of the configuration.
func ExampleKind() {
	kind := process.Kind()
	node, _ := config.ParseNode("/etc/router/config.yaml", []byte(`command: [plugins/enrich, -v]
sha256: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
allow: {lookup: [pods.byNode]}
`))
	fmt.Println(kind.Check(node).Err())
	for _, program := range kind.(plugins.ProgramRunner).Programs(node) {
		fmt.Println(program.File, program.SHA256[:8])
	}
	for _, grant := range kind.(plugins.LookupRequester).Lookups(node) {
		fmt.Println(grant.Source, grant.Index)
	}

	node, _ = config.ParseNode("config.yaml", []byte(`command: [plugins/enrich]
sha256: 9f86
env: {PLUGIN_PORT: "1"}
`))
	fmt.Println(kind.Check(node))
	// Output:
	// <nil>
	// /etc/router/plugins/enrich 9f86d081
	// pods byNode
	// config.yaml:2:9: sha256: must be 64 hexadecimal digits, as sha256sum prints them
	// config.yaml:3:20: env.PLUGIN_PORT: is set by the router itself: remove it
}
