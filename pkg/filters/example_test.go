package filters_test

import (
	"context"
	"fmt"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/filters"
)

// failedPod returns a delta of a pod that has failed on the node n1.
func failedPod() *event.Delta {
	pod, err := event.ParseObject(&event.Resource{Kind: "Pod"}, `{"metadata": {"name": "web-0"}, "spec": {"nodeName": "n1"}, "status": {"phase": "Failed"}}`)
	if err != nil {
		panic(err)
	}
	return &event.Delta{Source: "pods", Op: event.Added, New: pod}
}

// A table finds the routes that want a delta without evaluating the filters of all routes.
func ExampleTable_Match() {
	entry := func(text string) filters.Entry {
		filter, err := filters.Compile(text)
		if err != nil {
			panic(err)
		}
		return filters.Entry{Sources: []string{"pods"}, Ops: []event.Op{event.Added}, Filter: filter}
	}
	table := filters.NewTable([]filters.Entry{
		entry(`object.status.phase == "Failed"`),
		entry(`object.status.phase == "Running"`),
		entry(`object.status.phase == "Failed" && object.metadata.name.startsWith("web")`),
	})
	for _, m := range table.Match(context.Background(), failedPod(), nil) {
		fmt.Println(m.Entry, m.Verdict == filters.Matched, m.Err)
	}
	fmt.Println(table.Skipped(1))
	// Output:
	// 0 true <nil>
	// 2 true <nil>
	// 1
}

// A filter that misses a field does not match. A mistake in the text is an error with its place.
func ExampleCompile() {
	filter, err := filters.Compile(`object.spec.priority > 100`)
	if err != nil {
		panic(err)
	}
	fmt.Println(filter.Match(context.Background(), failedPod()))
	_, err = filters.Compile(`object.spec.priority >> 100`)
	fmt.Println(err)
	// Output:
	// false <nil>
	// filter "object.spec.priority >> 100": 1:23: syntax error: unexpected '>'
}

func ExampleFunc() {
	onNode := filters.Func(func(_ context.Context, d *event.Delta) (bool, error) {
		return d.Object().Raw().Path("spec", "nodeName").Str() == "n1", nil
	})
	fmt.Println(onNode.Match(context.Background(), failedPod()))
	// Output: true <nil>
}
