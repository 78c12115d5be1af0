package commands

import (
	"testing"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/discard"
	"github.com/deltarouter/deltarouter/pkg/plugins/stdout"
	"github.com/deltarouter/deltarouter/pkg/plugins/wasm"
	"github.com/deltarouter/deltarouter/test/must"
)

// described has the one method that every kind has, and no other.
type described struct{}

func (described) Describe() config.Kind { return config.Kind{Name: "described"} }

func TestComponents(t *testing.T) {
	made, err := Components(stdout.Kind(), wasm.Kind(), discard.Kind())
	must.Succeed(t, err)
	if len(made.Handlers) != 1 || len(made.Sinks) != 2 || made.Emit == nil {
		t.Errorf("got %+v", made)
	}
	for want, kinds := range map[string][]plugins.AnyKind{
		"two kinds have the name of the sink stdout":        {stdout.Kind(), wasm.Kind(), stdout.Kind()},
		"commands.described is neither a plugins.Handler":   {described{}},
		"<nil> is neither a plugins.HandlerKind nor a plug": {nil},
	} {
		_, err := Components(kinds...)
		must.Fail(t, err, want)
	}
}
