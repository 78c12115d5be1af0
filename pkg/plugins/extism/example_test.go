package extism_test

import (
	"fmt"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/extism"
)

// A module gets the members of config as the texts of its configuration, and its variables with kv.
func ExampleKind() {
	kind := extism.Kind()
	node, _ := config.ParseNode("/etc/router/config.yaml", []byte(`module: plugins/notify.wasm
function: on_delta
config: {channel: "#ops"}
allow: {kv: true}
`))
	fmt.Println(kind.Check(node).Err())
	fmt.Println(kind.(plugins.FileReader).Files(node), kind.(plugins.Rememberer).Remembers(node))

	node, _ = config.ParseNode("config.yaml", []byte(`module: plugins/notify.wasm
config: [ops]
allow: {kw: true}
`))
	fmt.Println(kind.Check(node))
	// Output:
	// <nil>
	// [/etc/router/plugins/notify.wasm] true
	// config.yaml:2:9: config: must be a mapping: a module for Extism asks for each value by its key
	// config.yaml:3:9: allow.kw: unknown key; did you mean "kv"?
}
