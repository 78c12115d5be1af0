package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	routermetrics "github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/test/bench/report"
)

// stopLoops measures the CPU per call of an endless loop until it is stopped, and the time that
// Go's garbage collector waits for its pause: the longest time from the stop request until all
// goroutines have stopped, and the longest collection.
func stopLoops(ctx context.Context, _ *report.Report, dir string, rounds int) error {
	file := filepath.Join(dir, "endless.wasm")
	if err := os.WriteFile(file, endless(), 0o600); err != nil {
		return err
	}
	fmt.Printf("\nan endless loop at the default fuel\n")
	for _, n := range []int{1, batchSize} {
		var cpu, wall []time.Duration
		longest, before := time.Duration(0), readPauses(stopping)
		for range rounds {
			took, lasted, collected, err := stopLoop(ctx, file, n)
			if err != nil {
				return err
			}
			cpu, wall = append(cpu, took), append(wall, lasted)
			longest = max(longest, collected)
		}
		fmt.Printf("  batch of %-2d: %6.1f ms CPU and %.1f ms per call; meanwhile the garbage collector %s\n", n, median(cpu).Seconds()*1e3, median(wall).Seconds()*1e3, waited(before, longest))
	}
	longest, before := time.Duration(0), readPauses(stopping)
	for range 50 {
		longest = max(longest, collect())
	}
	fmt.Printf("  without a guest it %s\n", waited(before, longest))
	return nil
}

// waited renders the waits of the collector since a reading.
func waited(before *metrics.Float64Histogram, longest time.Duration) string {
	h := since(before, readPauses(stopping))
	return fmt.Sprintf("waited up to %.2f ms for all to stop (99 %%: %.2f ms), and the longest runtime.GC() took %.1f ms",
		h.within(1)*1e3, h.within(0.99)*1e3, longest.Seconds()*1e3)
}

// stopLoop handles a batch. It first measures the CPU per call of the guest without the
// collector's, and then the time per call and the longest collection during a second batch.
func stopLoop(ctx context.Context, file string, n int) (perCall, lasted, collected time.Duration, err error) {
	batch, err := deltas(n)
	if err != nil {
		return 0, 0, 0, err
	}
	handle := func() (cpu, wall time.Duration, err error) {
		handler, m, err := open(ctx, file, "")
		if err != nil {
			return 0, 0, err
		}
		defer handler.Close(ctx)
		began, before := time.Now(), cpuTime()
		if _, err := handler.Handle(ctx, batch); err != nil {
			return 0, 0, err
		}
		calls := time.Duration(max(1, outOfFuel(m)))
		return (cpuTime() - before) / calls, time.Since(began) / calls, nil
	}
	if perCall, _, err = handle(); err != nil {
		return 0, 0, 0, err
	}
	done, longest := make(chan struct{}), make(chan time.Duration)
	go func() {
		most := time.Duration(0)
		for {
			most = max(most, collect())
			select {
			case <-done:
				longest <- most
				return
			default:
			}
		}
	}()
	_, lasted, err = handle()
	close(done)
	return perCall, lasted, <-longest, err
}

func outOfFuel(m *routermetrics.Metrics) int {
	return int(testutil.ToFloat64(m.GuestsEnded.WithLabelValues("bench", "fuel")))
}

func collect() time.Duration {
	began := time.Now()
	runtime.GC()
	return time.Since(began)
}
