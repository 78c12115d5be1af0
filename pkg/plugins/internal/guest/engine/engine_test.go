package engine

import (
	"context"
	"testing"

	"github.com/tetratelabs/wazero"

	"github.com/deltarouter/deltarouter/test/leaks"
	"github.com/deltarouter/deltarouter/test/must"
)

// TestInterpreted fails if a new version of wazero renames its interpreter.
func TestInterpreted(t *testing.T) {
	// A module with one empty function f.
	module := []byte("\x00asm\x01\x00\x00\x00\x01\x04\x01\x60\x00\x00\x03\x02\x01\x00\x07\x05\x01\x01f\x00\x00\x0a\x04\x01\x02\x00\x0b")
	for _, tt := range []struct {
		name   string
		config wazero.RuntimeConfig
		want   bool
	}{
		{"interpreter", wazero.NewRuntimeConfigInterpreter(), true},
		{"as it comes", wazero.NewRuntimeConfig(), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := &Engine{runtime: wazero.NewRuntimeWithConfig(t.Context(), tt.config)}
			defer e.runtime.Close(context.WithoutCancel(t.Context()))
			var err error
			if e.compiled, err = e.runtime.CompileModule(t.Context(), module); err != nil {
				t.Fatal(err)
			}
			m, err := e.runtime.InstantiateModule(t.Context(), e.compiled, wazero.NewModuleConfig())
			must.Succeed(t, err)
			in := &Instance{engine: e, module: m}
			if got := in.Interpreted(); got != tt.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

func TestMain(m *testing.M) { leaks.Main(m) }
