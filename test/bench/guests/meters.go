package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"time"

	extism "github.com/extism/go-sdk"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"

	"github.com/deltarouter/deltarouter/internal/meter"
	"github.com/deltarouter/deltarouter/test/bench/report"
)

// slice is the fuel of guests between two pauses, as in package wasm.
const slice = 36_000

// parsesPerRun is the number of parsed pods in a run of a contender.
const parsesPerRun = 20

// compareMeters compares the ways to stop a guest. The guest is in Go and parses a pod with
// encoding/json.
func compareMeters(ctx context.Context, out *report.Report, dir string, rounds int) error {
	file, err := build(ctx, dir, "rtr", "guests/testdata/rtr")
	if err != nil {
		return err
	}
	code, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	metered, err := meter.Rewrite(code, meter.Config{Init: math.MaxInt64 / 2, Slice: slice})
	if err != nil {
		return err
	}
	text := []byte(podJSON(1))
	plain, err := newBare(ctx, code, "", wazero.NewRuntimeConfig(), text)
	if err != nil {
		return err
	}
	defer plain.close(ctx)
	fuelled, err := newBare(ctx, metered.Code, metered.Arm, wazero.NewRuntimeConfig(), text)
	if err != nil {
		return err
	}
	defer fuelled.close(ctx)
	fuel, ok := fuelled.module.ExportedGlobal(metered.Fuel).(api.MutableGlobal)
	if !ok {
		return fmt.Errorf("there is no counter %s", metered.Fuel)
	}
	stack, ok := fuelled.module.ExportedGlobal(metered.Stack).(api.MutableGlobal)
	if !ok {
		return fmt.Errorf("there is no counter %s", metered.Stack)
	}
	rest, ok := fuelled.module.ExportedGlobal(metered.Rest).(api.MutableGlobal)
	if !ok {
		return fmt.Errorf("there is no counter %s", metered.Rest)
	}
	parseMetered := func() error {
		fuel.Set(slice)
		rest.Set(1<<60 - slice)
		stack.Set(0)
		return fuelled.parse(ctx)
	}
	closing, err := newBare(ctx, code, "", wazero.NewRuntimeConfig().WithCloseOnContextDone(true), text)
	if err != nil {
		return err
	}
	defer closing.close(ctx)
	plugin, err := newExtism(ctx, dir)
	if err != nil {
		return err
	}
	defer plugin.Close(ctx)

	limited, cancel := context.WithTimeout(ctx, time.Hour)
	defer cancel()
	times := func(parse func() error) func() error {
		return func() error {
			for range parsesPerRun {
				if err := parse(); err != nil {
					return err
				}
			}
			return nil
		}
	}
	title := fmt.Sprintf("A guest in Go that parses an object of %d bytes with encoding/json, CPU per object", len(text))
	err = compare(out, "meters", title, rounds, 10, []contender{
		{"metered", times(parseMetered), parsesPerRun},
		{"stopped by WithCloseOnContextDone", times(func() error { return closing.parse(limited) }), parsesPerRun},
		{"extism/go-sdk, with a timeout", times(func() error { return parseWithExtism(ctx, plugin, text) }), parsesPerRun},
		{"plain, not to be stopped", times(func() error { return plain.parse(ctx) }), parsesPerRun},
	})
	fmt.Printf("  it takes %d fuel\n", 1<<60-fuel.Get()-rest.Get())
	return err
}

// bare is a guest that runs directly on wazero.
type bare struct {
	runtime  wazero.Runtime
	module   api.Module
	restarts api.Function
	buffer   uint32
	text     []byte
	stack    [1]uint64
}

// newBare makes the guest; arm is the exported function of a metered guest that receives the
// function for its pauses.
func newBare(ctx context.Context, code []byte, arm string, conf wazero.RuntimeConfig, text []byte) (*bare, error) {
	b := &bare{runtime: wazero.NewRuntimeWithConfig(ctx, conf), text: text}
	wasi_snapshot_preview1.MustInstantiate(ctx, b.runtime)
	var err error
	b.module, err = b.runtime.InstantiateWithConfig(ctx, code, wazero.NewModuleConfig().WithStartFunctions())
	if err != nil {
		return nil, err
	}
	if arm != "" {
		if err := armWith(ctx, b.runtime, b.module.ExportedFunction(arm)); err != nil {
			return nil, err
		}
	}
	if _, err := b.module.ExportedFunction("_initialize").Call(ctx); err != nil {
		return nil, err
	}
	at, err := b.module.ExportedFunction("alloc").Call(ctx, uint64(len(text)))
	if err != nil {
		return nil, err
	}
	b.buffer, b.restarts = uint32(at[0]), b.module.ExportedFunction("restarts")
	return b, nil
}

// armWith sets the function for a guest's pauses, which reads the clock like the router's.
func armWith(ctx context.Context, r wazero.Runtime, arm api.Function) error {
	deadline := time.Now().Add(time.Hour)
	pause := api.GoModuleFunc(func(_ context.Context, _ api.Module, stack []uint64) {
		if time.Now().Before(deadline) {
			stack[0] = min(stack[0], slice)
		}
	})
	i64 := []api.ValueType{api.ValueTypeI64}
	_, err := r.NewHostModuleBuilder(meter.PauseModule).NewFunctionBuilder().WithGoModuleFunction(pause, i64, i64).Export(meter.PauseFunction).Instantiate(ctx)
	if err != nil {
		return err
	}
	helper, err := r.InstantiateWithConfig(ctx, meter.PauseHelper(), wazero.NewModuleConfig().WithName(""))
	if err != nil {
		return err
	}
	ref, err := helper.ExportedFunction(meter.PauseRef).Call(ctx)
	if err != nil {
		return err
	}
	_, err = arm.Call(ctx, ref...)
	return err
}

func (b *bare) parse(ctx context.Context) error {
	if !b.module.Memory().Write(b.buffer, b.text) {
		return fmt.Errorf("no room at %d", b.buffer)
	}
	b.stack[0] = uint64(len(b.text))
	if err := b.restarts.CallWithStack(ctx, b.stack[:]); err != nil {
		return err
	}
	return checkRestarts(uint32(b.stack[0]))
}

func checkRestarts(n uint32) error {
	if n != 6 {
		return fmt.Errorf("the guest says %d", int32(n))
	}
	return nil
}

func (b *bare) close(ctx context.Context) { _ = b.runtime.Close(ctx) }

// newExtism makes the guest like Extism's documentation does, with a timeout that never expires.
func newExtism(ctx context.Context, dir string) (*extism.Plugin, error) {
	file, err := build(ctx, dir, "extism", "guests/testdata/extism")
	if err != nil {
		return nil, err
	}
	manifest := extism.Manifest{Wasm: []extism.Wasm{extism.WasmFile{Path: file}}, Timeout: uint64(time.Hour.Milliseconds())}
	return extism.NewPlugin(ctx, manifest, extism.PluginConfig{EnableWasi: true}, nil)
}

func parseWithExtism(ctx context.Context, plugin *extism.Plugin, text []byte) error {
	n, _, err := plugin.CallWithContext(ctx, "restarts", text)
	if err != nil {
		return err
	}
	return checkRestarts(n)
}
