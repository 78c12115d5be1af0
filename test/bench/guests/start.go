package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"

	"github.com/deltarouter/deltarouter/internal/meter"
	"github.com/deltarouter/deltarouter/test/bench/report"
)

// startGuests measures the start of the example in Go: with compilation, from the cache on disk,
// and of a further instance.
func startGuests(ctx context.Context, _ *report.Report, dir string, rounds int) error {
	file, err := build(ctx, dir, "restart-alert", "../../examples/plugins/restart-alert")
	if err != nil {
		return err
	}
	code, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	ready := func(cache string) (time.Duration, error) {
		before := cpuTime()
		handler, _, err := open(ctx, file, cache)
		if err != nil {
			return 0, err
		}
		took := cpuTime() - before
		return took, handler.Close(ctx)
	}
	var cold, warm, rewrite, instance []time.Duration
	for i := range rounds {
		cache := filepath.Join(dir, fmt.Sprint("cache", i))
		for _, into := range []*[]time.Duration{&cold, &warm} {
			took, err := ready(cache)
			if err != nil {
				return err
			}
			*into = append(*into, took)
		}
		before := cpuTime()
		if _, err := meter.Rewrite(code, meter.Config{}); err != nil {
			return err
		}
		rewrite = append(rewrite, cpuTime()-before)
	}
	if instance, err = instances(ctx, code, 10*rounds); err != nil {
		return err
	}
	fmt.Printf("\na guest in Go of %.1f MB until its first call, CPU\n", float64(len(code))/1e6)
	for _, line := range []struct {
		name string
		took []time.Duration
	}{{"compiled", cold}, {"from the cache on disk", warm}, {"of that to meter it", rewrite}, {"one more instance", instance}} {
		fmt.Printf("  %-24s %8.1f ms\n", line.name, median(line.took).Seconds()*1e3)
	}
	return nil
}

// instances starts instances of a metered module, one after the other.
func instances(ctx context.Context, code []byte, n int) (took []time.Duration, err error) {
	metered, err := meter.Rewrite(code, meter.Config{Init: math.MaxInt64 / 2, Slice: math.MaxInt64 / 2}) // without pauses
	if err != nil {
		return nil, err
	}
	r := wazero.NewRuntime(ctx)
	defer r.Close(ctx)
	wasi_snapshot_preview1.MustInstantiate(ctx, r)
	if err := stubs(ctx, r); err != nil {
		return nil, err
	}
	compiled, err := r.CompileModule(ctx, metered.Code)
	if err != nil {
		return nil, err
	}
	for range n {
		before := cpuTime()
		m, err := r.InstantiateModule(ctx, compiled, wazero.NewModuleConfig().WithName("").WithStartFunctions("_initialize"))
		if err != nil {
			return nil, err
		}
		took = append(took, cpuTime()-before)
		if err := m.Close(ctx); err != nil {
			return nil, err
		}
	}
	return took, nil
}

// stubs are the host functions that the example imports. It calls none of them during its start.
func stubs(ctx context.Context, r wazero.Runtime) error {
	b := r.NewHostModuleBuilder("rtr_v1")
	three, four := func(_, _, _ uint32) int32 { return -2 }, func(_, _, _, _ uint32) int32 { return -2 }
	b.NewFunctionBuilder().WithFunc(three).Export("log")
	b.NewFunctionBuilder().WithFunc(three).Export("emit")
	b.NewFunctionBuilder().WithFunc(four).Export("config_get")
	_, err := b.Instantiate(ctx)
	return err
}
