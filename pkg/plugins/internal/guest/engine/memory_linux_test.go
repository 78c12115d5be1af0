package engine

import (
	"runtime"
	"syscall"
	"testing"

	"github.com/tetratelabs/wazero/experimental"

	"github.com/deltarouter/deltarouter/test/must"
)

// TestMemoryIsTouched counts the page faults of a guest's first accesses to new memory. There must
// be none, because the garbage collector would wait for each.
func TestMemoryIsTouched(t *testing.T) {
	// Guarantee: guest-pauses
	const first, second = 16 << 20, 48 << 20
	for name, memory := range map[string]experimental.LinearMemory{"mapped": allocateMemory(0, 1<<30), "on the heap": &heapMemory{}} {
		t.Run(name, func(t *testing.T) {
			runtime.LockOSThread() // faults are counted per thread, and this is a goroutine of its own
			defer runtime.UnlockOSThread()
			defer memory.Free()
			for _, size := range []uint64{first, second} {
				bytes := memory.Reallocate(size)
				if uint64(len(bytes)) != size {
					t.Fatalf("it has %d bytes, want %d", len(bytes), size)
				}
				before := faults(t)
				for at := 0; at < len(bytes); at += 4096 {
					bytes[at]++
				}
				if n := faults(t) - before; n > 100 { // the runtime may cause some
					t.Errorf("%d page faults in %d pages", n, size/4096)
				}
			}
		})
	}
}

// faults returns the number of page faults of this thread.
func faults(t *testing.T) int64 {
	t.Helper()
	const thread = 1 // RUSAGE_THREAD
	var usage syscall.Rusage
	must.Succeed(t, syscall.Getrusage(thread, &usage))
	return usage.Minflt
}
