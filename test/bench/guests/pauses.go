package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"sync"
	"time"

	"github.com/deltarouter/deltarouter/test/bench/report"
)

// The stop-the-world pauses of Go's garbage collector as defined by package runtime/metrics: from
// the decision to stop until all goroutines have stopped, and until they continue.
const (
	stopping = "/sched/pauses/stopping/gc:seconds"
	total    = "/sched/pauses/total/gc:seconds"
)

// The time of a round of comparePauses for each contender, the number of calls of a handler before
// it is reopened (five failures would open its breaker), and the pause that no guest may cause.
const (
	pausesTime  = 4 * time.Second
	callsPerRun = 4
	longPause   = 20 * time.Millisecond
)

// comparePauses prints the histogram of the process's stop-the-world pauses while a hostile guest
// runs on each core in the real handler with the default limits, beside goroutines that allocate
// and one that forces collections. There are two controls: Go code that chases the same pointers,
// which the runtime preempts with a signal, and no guest. Pauses that also occur in the controls
// are caused by the machine.
func comparePauses(ctx context.Context, _ *report.Report, dir string, rounds int) error {
	all := []*pauser{
		{name: "a guest that chases pointers", guest: chase()},
		{name: "a guest that touches new memory", guest: toucher()},
		{name: "a guest that loops", guest: endless()},
		{name: "control: Go code that chases pointers", run: chaseInGo},
		{name: "control: nothing", run: func(context.Context) error { return nil }},
	}
	for i, p := range all {
		if p.guest == nil {
			continue
		}
		file := filepath.Join(dir, fmt.Sprintf("pauses-%d.wasm", i))
		if err := os.WriteFile(file, p.guest, 0o600); err != nil {
			return err
		}
		p.run = func(ctx context.Context) error { return suffer(ctx, file) }
	}
	for range rounds {
		for _, p := range all {
			if err := p.measure(ctx); err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
		}
	}
	fmt.Printf("\nstop-the-world pauses of the process, %d processors, default limits, ms: median, 99 %%, longest (over %v)\n", runtime.GOMAXPROCS(0), longPause)
	for _, p := range all {
		fmt.Printf("  %-38s %6d pauses  until all stop %s  in all %s\n", p.name, p.total.count(), p.stopping, p.total)
	}
	return nil
}

// pauser is the load of all processors while pauses are counted, with the pauses so far.
type pauser struct {
	name            string
	guest           []byte                          // a module that gets deltas, or nil
	run             func(ctx context.Context) error // runs until ctx ends, at the latest
	stopping, total histogram
}

func (p *pauser) measure(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, pausesTime)
	defer cancel()
	var running sync.WaitGroup
	failed := make(chan error, runtime.GOMAXPROCS(0))
	stop, pause := readPauses(stopping), readPauses(total)
	for range runtime.GOMAXPROCS(0) {
		running.Go(func() {
			if err := p.run(ctx); err != nil && ctx.Err() == nil {
				failed <- err
			}
		})
		running.Go(func() { allocate(ctx) })
	}
	for ctx.Err() == nil {
		runtime.GC()
	}
	p.stopping, p.total = p.stopping.plus(since(stop, readPauses(stopping))), p.total.plus(since(pause, readPauses(total)))
	running.Wait()
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

// suffer opens handlers of a hostile module, and sends each of them deltas, but not enough to open
// its breaker.
func suffer(ctx context.Context, file string) error {
	batch, err := deltas(1)
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		handler, _, err := open(ctx, file, "")
		if err != nil {
			return err
		}
		for range callsPerRun {
			if _, err := handler.Handle(ctx, batch); err != nil {
				break
			}
		}
		if err := handler.Close(context.WithoutCancel(ctx)); err != nil {
			return err
		}
	}
	return nil
}

// chaseInGo follows the cycle of chase in Go's memory.
func chaseInGo(ctx context.Context) error {
	lines := make([][16]uint32, chaseLines)
	for i := range lines {
		lines[i][0] = (uint32(i)*1664525 + 1013904223) % chaseLines
	}
	at := uint32(0)
	for ctx.Err() == nil {
		for range 1000 * loads {
			at = lines[at][0]
		}
	}
	runtime.KeepAlive(at) // keeps the compiler from removing the loop
	return nil
}

// allocate makes garbage, some of it with pointers.
func allocate(ctx context.Context) {
	var kept [64][]*[16]int
	for i := 0; ctx.Err() == nil; i++ {
		some := make([]*[16]int, 256)
		for k := range some {
			some[k] = new([16]int)
		}
		kept[i%len(kept)] = some
		time.Sleep(100 * time.Microsecond)
	}
	runtime.KeepAlive(&kept)
}

// histogram counts pauses. Its zero value has none.
type histogram struct {
	counts []uint64
	bounds []float64 // in seconds; counts[i] counts values below bounds[i+1]
}

func readPauses(name string) *metrics.Float64Histogram {
	sample := []metrics.Sample{{Name: name}}
	metrics.Read(sample)
	return sample[0].Value.Float64Histogram()
}

// since returns the histogram of the values between two readings.
func since(before, after *metrics.Float64Histogram) histogram {
	h := histogram{counts: make([]uint64, len(after.Counts)), bounds: after.Buckets}
	for i := range h.counts {
		h.counts[i] = after.Counts[i] - before.Counts[i]
	}
	return h
}

func (h histogram) plus(other histogram) histogram {
	for i := range h.counts {
		other.counts[i] += h.counts[i]
	}
	return other
}

func (h histogram) count() (n uint64) {
	for _, c := range h.counts {
		n += c
	}
	return n
}

// within returns an upper bound in seconds for the given share of the pauses.
func (h histogram) within(share float64) float64 {
	all, sum := h.count(), uint64(0)
	for i, c := range h.counts {
		if sum += c; float64(sum) >= share*float64(all) {
			return h.bounds[i+1]
		}
	}
	return 0
}

// longer returns the number of pauses longer than a duration.
func (h histogram) longer(than time.Duration) (n uint64) {
	for i, c := range h.counts {
		if h.bounds[i] >= than.Seconds() {
			n += c
		}
	}
	return n
}

func (h histogram) String() string {
	return fmt.Sprintf("%6.3f %6.2f %6.2f (%d)", h.within(0.5)*1e3, h.within(0.99)*1e3, h.within(1)*1e3, h.longer(longPause))
}
