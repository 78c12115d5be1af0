package wasm

import (
	"context"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
)

// TestWASI compares the functions and their signatures with wazero's.
func TestWASI(t *testing.T) {
	functions := func(provide func(ctx context.Context, r wazero.Runtime) error) map[string]string {
		r := wazero.NewRuntimeWithConfig(t.Context(), wazero.NewRuntimeConfigInterpreter())
		defer r.Close(context.WithoutCancel(t.Context()))
		if err := provide(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		all := map[string]string{}
		for name, f := range r.Module(wasiModule).ExportedFunctionDefinitions() {
			all[name] = signature(f)
		}
		return all
	}
	ours := functions(func(ctx context.Context, r wazero.Runtime) error { return provideWASI(ctx, &engine{runtime: r}) })
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
