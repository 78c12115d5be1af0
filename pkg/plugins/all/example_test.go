package all_test

import (
	"fmt"

	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/all"
)

// The list has handlers and sinks.
func ExampleKinds() {
	for _, kind := range all.Kinds() {
		of := "handler"
		if _, ok := kind.(plugins.SinkKind); ok {
			of = "sink"
		}
		fmt.Println(of, kind.Describe().Name)
	}
	// Output:
	// handler extism
	// handler js
	// handler process
	// handler stdio
	// handler wasm
	// sink discard
	// sink file
	// sink kubernetes
	// sink kafka
	// sink nats
	// sink otlp
	// sink stdout
	// sink webhook
}
