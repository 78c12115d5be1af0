package solo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// Measurement is the cost of a handler. Each number is the mean of one delta, except where it says
// otherwise.
type Measurement struct {
	Deltas    int           // handled in the measurement
	Time      time.Duration // median of the rounds
	Fuel      float64       // 0: the handler is not metered
	FuelLimit int64         // limits.fuel of one delta; 0: none
	Memory    float64       // of the guests at the end, in bytes
	Growth    float64       // of that memory during the measurement, in bytes
	Allocated float64       // bytes that the router allocates for the garbage collector
	Events    float64
}

// BenchOptions are the options of a benchmark.
type BenchOptions struct {
	Batch  int           // deltas per call
	Rounds int           // the handlers take turns
	Round  time.Duration // the minimum of one round
}

// empty is the configuration of a handler that makes no events.
const empty = `version: 1
sources: {pods: {resource: v1/pods}}
handlers: {empty: {wasm: {module: ./empty.wasm}}}
sinks: {none: {discard: {}}}
routes: [{name: empty, from: pods, handler: empty, to: none}]
`

// OpenEmpty opens a handler that does nothing: a module of a few instructions in the same sandbox.
func OpenEmpty(ctx context.Context, components compile.Components) (_ *Handler, err error) {
	dir, err := os.MkdirTemp("", "deltarouter-empty-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	path := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(filepath.Join(dir, "empty.wasm"), emptyModule(), 0o600); err != nil {
		return nil, err
	}
	if err := os.WriteFile(path, []byte(empty), 0o600); err != nil {
		return nil, err
	}
	components.Policy.RequireDigests = false // the module is ours
	return Open(ctx, Options{Config: path, Components: components, Log: slog.New(slog.DiscardHandler)})
}

// Bench measures handlers with the same deltas, round by round in turns, so that a change of the
// machine's load concerns all of them. The first error or failed delta ends it.
func Bench(ctx context.Context, deltas []*event.Delta, opts BenchOptions, handlers ...*Handler) ([]Measurement, error) {
	found := make([]Measurement, len(handlers))
	times := make([][]time.Duration, len(handlers))
	for i, h := range handlers {
		if _, err := h.round(ctx, deltas, opts); err != nil { // compiles what is compiled late
			return nil, err
		}
		_, memory := h.metrics.Guests(h.Name)
		found[i].Growth = -memory
	}
	for range opts.Rounds {
		for i, h := range handlers {
			r, err := h.round(ctx, deltas, opts)
			if err != nil {
				return nil, err
			}
			times[i] = append(times[i], r.time/time.Duration(r.deltas))
			m := &found[i]
			m.Deltas += r.deltas
			m.Fuel += r.fuel
			m.Allocated += r.allocated
			m.Events += float64(r.events)
		}
	}
	for i, h := range handlers {
		m, n := &found[i], float64(found[i].Deltas)
		slices.Sort(times[i])
		m.Time = times[i][len(times[i])/2]
		m.Fuel, m.Allocated, m.Events = m.Fuel/n, m.Allocated/n, m.Events/n
		_, m.Memory = h.metrics.Guests(h.Name)
		m.Growth += m.Memory
		if metered, ok := h.open.(interface{ Fuel() int64 }); ok {
			m.FuelLimit = metered.Fuel()
		}
	}
	return found, nil
}

// round is the cost of some calls.
type round struct {
	deltas, events  int
	time            time.Duration
	fuel, allocated float64
}

// round handles batches for the time of one round, at least one.
func (h *Handler) round(ctx context.Context, deltas []*event.Delta, opts BenchOptions) (r round, err error) {
	batch := make([]*event.Delta, max(1, opts.Batch))
	var before, after runtime.MemStats
	fuel, _ := h.metrics.Guests(h.Name)
	runtime.ReadMemStats(&before)
	for began := time.Now(); r.deltas == 0 || r.time < opts.Round; r.time = time.Since(began) {
		for i := range batch {
			batch[i] = deltas[(r.deltas+i)%len(deltas)]
		}
		results, err := h.open.Handle(ctx, batch)
		if err != nil {
			return r, err
		}
		for i, result := range results {
			if result.Verdict != plugins.OK && result.Verdict != plugins.Drop {
				return r, fmt.Errorf("%s: verdict %s: %w", batch[i], result.Verdict, cmp.Or(result.Err, errNoReason))
			}
			r.events += len(result.Events)
		}
		r.deltas += len(batch)
	}
	runtime.ReadMemStats(&after)
	used, _ := h.metrics.Guests(h.Name)
	r.fuel, r.allocated = used-fuel, float64(after.TotalAlloc-before.TotalAlloc)
	return r, nil
}
