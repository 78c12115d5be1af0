package commands

import (
	"fmt"

	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/internal/emit"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// Components returns the components of a router with the given kinds. Two kinds of handlers, or of
// sinks, with the same name are an error.
func Components(kinds ...plugins.AnyKind) (compile.Components, error) {
	made := compile.Components{Emit: emit.New}
	seen := make(map[string]bool)
	for _, kind := range kinds {
		var of string
		switch k := kind.(type) {
		case plugins.HandlerKind:
			of, made.Handlers = "handler", append(made.Handlers, k)
		case plugins.SinkKind:
			of, made.Sinks = "sink", append(made.Sinks, k)
		default:
			return compile.Components{}, fmt.Errorf("%T is neither a plugins.HandlerKind nor a plugins.SinkKind: compare its methods", kind)
		}
		id := of + " " + kind.Describe().Name
		if seen[id] {
			return compile.Components{}, fmt.Errorf("two kinds have the name of the %s: rename one of them", id)
		}
		seen[id] = true
	}
	return made, nil
}
