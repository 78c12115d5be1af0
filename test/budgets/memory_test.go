package budgets_test

import (
	"math"
	"runtime"
	"runtime/debug"
	"testing"
)

// usage is the memory that a piece of work has allocated.
type usage struct {
	allocs, bytes float64
}

func (u usage) minus(o usage) usage { return usage{u.allocs - o.allocs, u.bytes - o.bytes} }

func (u usage) over(n int) usage { return usage{u.allocs / float64(n), u.bytes / float64(n)} }

// least returns the lower figures of two runs of the same work: a disturbance adds allocations.
func (u usage) least(o usage) usage { return usage{min(u.allocs, o.allocs), min(u.bytes, o.bytes)} }

// most is neutral to least.
func most() usage { return usage{math.Inf(1), math.Inf(1)} }

// quiet makes allocations repeatable until the end of the test: one goroutine runs at a time, and
// no collection empties the pools.
func quiet(t *testing.T) {
	t.Helper()
	procs, percent, limit := runtime.GOMAXPROCS(1), debug.SetGCPercent(-1), debug.SetMemoryLimit(math.MaxInt64)
	t.Cleanup(func() {
		runtime.GOMAXPROCS(procs)
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(limit)
		runtime.GC()
	})
}

// of returns the allocations of all goroutines while do runs.
func of(do func()) usage {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return usage{float64(after.Mallocs - before.Mallocs), float64(after.TotalAlloc - before.TotalAlloc)}
}
