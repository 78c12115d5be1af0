package wasm_test

import (
	"slices"
	"testing"

	conf "github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/plugins/wasm"
)

// TestFiles: the module is part of the configuration.
func TestFiles(t *testing.T) {
	node, problems := conf.ParseNode("config.yaml", []byte("module: /plugins/a.wasm"))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	if got := wasm.Factory().Files(node); !slices.Equal(got, []string{"/plugins/a.wasm"}) {
		t.Errorf("got %q", got)
	}
}
