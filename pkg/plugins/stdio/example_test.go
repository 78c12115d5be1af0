package stdio_test

import (
	"fmt"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/stdio"
)

// The command sees only the files that the configuration names. A reload opens the handler again if
// one of them has changed.
func ExampleKind() {
	kind := stdio.Kind()
	node, _ := config.ParseNode("/etc/router/config.yaml", []byte(`module: python.wasm
args: [/app/audit.py]
files: [{file: audit.py, to: /app/audit.py}]
`))
	fmt.Println(kind.Check(node).Err())
	fmt.Println(kind.(plugins.FileReader).Files(node))

	node, _ = config.ParseNode("config.yaml", []byte(`module: python.wasm
files: [{file: audit.py, to: app/audit.py}]
limits: {memory: 1Ki}
`))
	fmt.Println(kind.Check(node))
	// Output:
	// <nil>
	// [/etc/router/python.wasm /etc/router/audit.py]
	// config.yaml:2:30: files[0].to: must be an absolute path without . and .., such as /data
	// config.yaml:3:18: limits.memory: must be at least 64Ki, not 1Ki
}
