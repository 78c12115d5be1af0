package host

import (
	"context"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"

	"github.com/deltarouter/deltarouter/test/must"
)

// TestWASI compares the functions and their signatures with wazero's.
func TestWASI(t *testing.T) {
	functions := func(provide func(ctx context.Context, r wazero.Runtime) error) map[string]string {
		r := wazero.NewRuntimeWithConfig(t.Context(), wazero.NewRuntimeConfigInterpreter())
		defer r.Close(context.WithoutCancel(t.Context()))
		must.Succeed(t, provide(t.Context(), r))
		all := map[string]string{}
		for name, f := range r.Module(wasiModule).ExportedFunctionDefinitions() {
			all[name] = Signature(f)
		}
		return all
	}
	ours := functions(ProvideWASI)
	theirs := functions(func(ctx context.Context, r wazero.Runtime) error {
		_, err := wasi_snapshot_preview1.Instantiate(ctx, r)
		return err
	})
	for name, want := range theirs {
		if got := ours[name]; got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if len(ours) != len(theirs) {
		t.Errorf("%d functions, want %d", len(ours), len(theirs))
	}
}
