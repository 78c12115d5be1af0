package process_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
	"github.com/deltarouter/deltarouter/test/effort"
)

// TestKilledOverAndOver kills the plugin at random moments while four workers send batches. Each
// worker repeats the deltas that were not answered with ok, like a route.
func TestKilledOverAndOver(t *testing.T) {
	// Guarantee: plugin-crash
	b := newBench(t)
	b.open("limits: {breaker: 0}")
	b.killOverAndOver(effort.Rounds(5, 20, 1000))
	b.close()
	if t.Failed() || os.Getenv("PLUGIN_LOG") != "" {
		t.Log(b.log)
	}
}

// killOverAndOver kills the plugin while workers send batches. Each batch is repeated until all of
// its deltas have an event that names the object.
func (b *bench) killOverAndOver(kills int) {
	t, h := b.t, b.handler
	t.Helper()
	ctx, done := context.WithCancel(t.Context())
	var given, acked, failed atomic.Int64
	var workers sync.WaitGroup
	for worker := range b.env.Workers {
		workers.Go(func() {
			random := rand.New(rand.NewPCG(uint64(worker), 1)) //nolint:gosec // a seed that can be used again
			for round := 0; ctx.Err() == nil; round++ {
				batch := make([]*event.Delta, 1+random.IntN(64))
				for i := range batch {
					pod := fmt.Sprintf(`{"metadata":{"name":"p.%d.%d.%d","uid":"1","resourceVersion":"1","labels":{"a":"b"}}}`, worker, round, i)
					batch[i] = &event.Delta{Source: "pods", Op: event.Added, New: plugintest.Object(t, pod)}
				}
				given.Add(int64(len(batch)))
				deliver(t, h, batch, &acked, &failed)
			}
		})
	}
	random := rand.New(rand.NewPCG(7, 7)) //nolint:gosec // a seed that can be used again
	killed := map[int]bool{}
	for len(killed) < kills && !t.Failed() {
		var pids []int
		eventually(t, "there is a process that was not killed yet", func() bool {
			pids = children(t)
			return len(pids) == 1 && !killed[pids[0]]
		})
		pause(time.Duration(random.IntN(150)) * time.Millisecond) // also during a start
		killed[pids[0]] = true
		_ = syscall.Kill(pids[0], syscall.SIGKILL)
	}
	done()
	workers.Wait()
	if given.Load() != acked.Load() {
		t.Errorf("%d deltas were given, %d acknowledged", given.Load(), acked.Load())
	}
	t.Logf("%d kills, %d deltas, %d attempts failed", len(killed), acked.Load(), failed.Load())
}

// deliver repeats a batch until each of its deltas has its event.
func deliver(t testing.TB, h plugins.Handler, batch []*event.Delta, acked, failed *atomic.Int64) {
	for len(batch) > 0 {
		results, err := h.Handle(context.WithoutCancel(t.Context()), batch)
		if err != nil || len(results) != len(batch) {
			t.Errorf("%d results: %v", len(results), err)
			return
		}
		var again []*event.Delta
		for i, r := range results {
			switch {
			case r.Verdict == plugins.OK:
				var data struct{ Name string }
				if len(r.Events) != 1 || json.Unmarshal(r.Events[0].Data, &data) != nil || data.Name != batch[i].New.Key().Name {
					t.Errorf("%s has the events %v", batch[i], r.Events)
				}
				acked.Add(1)
			case plugins.ClassOf(r.Err) == plugins.Rejected:
				t.Errorf("%s is given up: %v", batch[i], r.Err)
			default:
				failed.Add(1)
				again = append(again, batch[i])
			}
		}
		batch = again
	}
}

// pause waits for a duration, because the plugin is killed at random moments.
func pause(d time.Duration) { <-time.After(d) }
