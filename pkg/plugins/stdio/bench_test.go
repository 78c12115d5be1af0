//go:build unix

package stdio_test

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
	"github.com/deltarouter/deltarouter/pkg/plugins/wasm"
	"github.com/deltarouter/deltarouter/test/must"
)

// BenchmarkDelta compares a command with a module for the ABI rtr_v1, both in C: each gets a pod of
// 5 KB with its state before, and emits an event with two fields. It counts the CPU time of the
// process. The ratio is that of the medians of rounds that take turns.
func BenchmarkDelta(b *testing.B) {
	r := newRouter(b)
	command := r.open(b, fmt.Sprintf("{module: %q}", examples+"command-c/command-c.wasm"))
	module, err := wasm.Kind().Open(b.Context(), plugintest.Node(b, fmt.Sprintf("{module: %q, config: {note: x}}", root+"sdk/conformance/c/summary.wasm")), r.env)
	must.Succeed(b, err)
	defer func() { must.Succeed(b, module.Close(context.WithoutCancel(b.Context()))) }()
	const deltas = 64
	batch := make([]*event.Delta, deltas)
	for i := range batch {
		batch[i] = &event.Delta{Source: "pods", Op: event.Updated, Old: plugintest.Pod(b, "web", i+1, 5000), New: plugintest.Pod(b, "web", i+2, 5000)}
	}
	round := func(h plugins.Handler) time.Duration {
		began := cpuTime(b)
		results, err := h.Handle(b.Context(), batch)
		must.Succeed(b, err)
		for _, r := range results {
			if r.Err != nil {
				b.Fatal(r.Err)
			}
		}
		return (cpuTime(b) - began) / deltas
	}
	var commands, modules []time.Duration
	for b.Loop() {
		commands = append(commands, round(command))
		modules = append(modules, round(module))
	}
	slices.Sort(commands)
	slices.Sort(modules)
	c, m := commands[len(commands)/2], modules[len(modules)/2]
	b.ReportMetric(float64(c.Nanoseconds())/1000, "µs/stdio")
	b.ReportMetric(float64(m.Nanoseconds())/1000, "µs/wasm")
	b.ReportMetric(float64(c)/float64(m), "ratio")
	b.ReportMetric(0, "ns/op")
}

// cpuTime returns the CPU time of this process.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	must.Succeed(b, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
