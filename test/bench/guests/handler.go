package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/tetratelabs/wazero"

	"github.com/deltarouter/deltarouter/internal/kv"
	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/wasm"
	"github.com/deltarouter/deltarouter/test/bench/report"
)

// open makes a handler from the file of a module.
func open(ctx context.Context, file, cache string) (plugins.Handler, *metrics.Metrics, error) {
	return openKind(ctx, wasm.Kind(), fmt.Sprintf("module: %q\n", file), cache)
}

// openKind makes a handler of a kind from its configuration.
func openKind(ctx context.Context, kind plugins.HandlerKind, text, cache string) (plugins.Handler, *metrics.Metrics, error) {
	node, problems := config.ParseNode("config.yaml", []byte(text))
	if len(problems) > 0 {
		return nil, nil, problems
	}
	m := metrics.New()
	h, err := kind.Open(ctx, node, plugins.HandlerEnv{Env: plugins.Env{
		Name: "bench", Cluster: "bench", Metrics: m, KV: kv.New(timer.Real(), false), Log: slog.New(slog.DiscardHandler),
	}, Workers: 1, Cache: cache})
	return h, m, err
}

// compareCalls compares an empty handler with a bare call of its function, before which the same
// bytes are copied into its memory.
func compareCalls(ctx context.Context, out *report.Report, dir string, rounds int) error {
	file := filepath.Join(dir, "empty.wasm")
	if err := os.WriteFile(file, empty(), 0o600); err != nil {
		return err
	}
	batch, err := deltas(batchSize)
	if err != nil {
		return err
	}
	handler, _, err := open(ctx, file, "")
	if err != nil {
		return err
	}
	defer handler.Close(ctx)

	runtime := wazero.NewRuntime(ctx)
	defer runtime.Close(ctx)
	guest, err := runtime.Instantiate(ctx, empty())
	if err != nil {
		return err
	}
	call, memory, stack := guest.ExportedFunction("rtr_handle"), guest.Memory(), make([]uint64, 2)
	bare := func() error {
		at := uint32(inputAt)
		for _, d := range batch {
			text := d.New.JSON()
			view, ok := memory.Read(at, uint32(len(text)))
			if !ok {
				return fmt.Errorf("no room at %d", at)
			}
			copy(view, text)
			at += uint32(len(text))
		}
		stack[0], stack[1] = inputAt, uint64(at-inputAt)
		return call.CallWithStack(ctx, stack)
	}
	ours := func() error {
		_, err := handler.Handle(ctx, batch)
		return err
	}
	title := fmt.Sprintf("An empty handler, %d objects of %d bytes a call, CPU per object", batchSize, len(batch[0].New.JSON()))
	return compare(out, "calls", title, rounds, 10_000, []contender{{"Handle", ours, batchSize}, {"a bare call of the plain module, and a copy", bare, batchSize}})
}
