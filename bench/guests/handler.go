package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"github.com/tetratelabs/wazero"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/kv"
	"github.com/deltarouter/deltarouter/pkg/metrics"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/wasm"
	"github.com/deltarouter/deltarouter/pkg/timer"
)

const (
	batchSize = 64
	inputAt   = 1 << 16
)

// module assembles a guest of the ABI rtr_v1 whose rtr_handle has this body. It has a megabyte for its input.
func module(handle ...byte) []byte {
	sized := func(b []byte) []byte { return append([]byte{byte(len(b))}, b...) }
	section := func(id byte, content ...[]byte) []byte {
		return append([]byte{id}, sized(slices.Concat(content...))...)
	}
	export := func(name string, kind, index byte) []byte { return append(sized([]byte(name)), kind, index) }
	const i32, i64, end = 0x7f, 0x7e, 0x0b
	return slices.Concat(
		[]byte("\x00asm\x01\x00\x00\x00"),
		section(1, []byte{3}, []byte{0x60, 0, 1, i32}, []byte{0x60, 1, i32, 1, i32}, []byte{0x60, 2, i32, i32, 1, i64}),
		section(3, []byte{3, 0, 1, 2}),
		section(5, []byte{1, 0, 33}),
		section(7, []byte{4}, export("memory", 2, 0), export("rtr_abi_version", 0, 0), export("rtr_alloc", 0, 1), export("rtr_handle", 0, 2)),
		section(10, []byte{3}, sized([]byte{0, 0x41, 1, end}), sized([]byte{0, 0x41, 0x80, 0x80, 4 /* inputAt */, end}), sized(slices.Concat([]byte{0}, handle, []byte{end}))),
	)
}

// empty is a guest that does nothing, endless one that never stops.

func empty() []byte { return module(0x42, 0) }

func endless() []byte { return module(0x03, 0x40, 0x0c, 0, 0x0b, 0x42, 0) }

// open makes a handler of the file of a module.
func open(ctx context.Context, file, cache string, rest ...any) (plugins.Handler, *metrics.Metrics, error) {
	text := fmt.Sprintf("module: %q\n", file) + fmt.Sprint(rest...)
	node, problems := config.ParseNode("config.yaml", []byte(text))
	if len(problems) > 0 {
		return nil, nil, problems
	}
	m := metrics.New()
	h, err := wasm.Factory().Open(ctx, node, plugins.Env{
		Name: "bench", Cluster: "bench", Metrics: m, Workers: 1, KV: kv.New(timer.Real(), false), Cache: cache, Log: slog.New(slog.DiscardHandler),
	})
	return h, m, err
}

// compareCalls compares an empty handler with the bare call of its function, before which the same bytes are copied into its memory.
func compareCalls(ctx context.Context, dir string, rounds int) error {
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
	title := fmt.Sprintf("an empty handler, %d objects of %d bytes a call, CPU per object", batchSize, len(batch[0].New.JSON()))
	return compare(title, rounds, 10_000, []contender{{"Handle", ours, batchSize}, {"a bare call of the plain module, and a copy", bare, batchSize}})
}
