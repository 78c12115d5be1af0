package js_test

import (
	"fmt"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/js"
)

// The code is in a file or in the configuration.
func ExampleKind() {
	kind := js.Kind()
	node, _ := config.ParseNode("/etc/router/config.yaml", []byte(`file: plugins/summary.js
allow: {kv: true}
`))
	fmt.Println(kind.Check(node).Err())
	fmt.Println(kind.(plugins.FileReader).Files(node), kind.(plugins.Rememberer).Remembers(node))

	node, _ = config.ParseNode("config.yaml", []byte(`file: plugins/summary.js
source: "export default (delta) => [{data: delta.name}];"
largeIntegers: bigint
`))
	fmt.Println(kind.Check(node))
	// Output:
	// <nil>
	// [/etc/router/plugins/summary.js] true
	// config.yaml:2:9: source: stands beside file: remove one of them
	// config.yaml:3:16: largeIntegers: must be number or text, not "bigint"
}
