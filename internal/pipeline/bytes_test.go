package pipeline_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/internal/pipeline"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// The deltas of these tests take about 500 bytes, see entryBytes, and never twice as much.
const (
	boundBytes = 8 * entryBytes
	mostBytes  = boundBytes + 2*entryBytes
)

// TestBytesSpill: deltas beyond the bytes of the queue are on disk only, also while they are read
// back, and all of them are delivered in order.
func TestBytesSpill(t *testing.T) {
	// Guarantee: backlog-on-disk
	synctest.Test(t, func(t *testing.T) {
		s, open := blockingSink()
		var b *harness
		most, wait := int64(0), s.before
		s.before = func(ctx context.Context) {
			wait(ctx)
			most = max(most, b.statusOf("route0").Bytes)
		}
		b, k := startOn(t, pipeline.Config{}, spec.Settings{Sinks: to(s), Bytes: boundBytes, Disk: 1 << 20, Batch: spec.Batch{Size: 1}})
		for v := 1; v <= 100; v += 20 {
			b.admit(updates(t, v, v+19)...)
			k.cut(b)
		}
		if s := b.statusOf("route0"); s.Pending != 100 || s.OnDisk < 80 || s.Bytes > mostBytes || s.Bytes < boundBytes/2 {
			t.Errorf("%+v, want %d bytes in memory", s, boundBytes)
		}
		if n := b.value("route_queue_memory_bytes", "route0"); n != float64(b.statusOf("route0").Bytes) {
			t.Errorf("%v bytes by the metric, %d by the status", n, b.statusOf("route0").Bytes)
		}
		open()
		b.drain()
		perObject(t, s.got(), 1, 100)
		b.balanced("route0")
		if most > mostBytes {
			t.Errorf("%d bytes in memory while the disk was read, want %d at most", most, boundBytes)
		}
	})
}

// TestBytesOverflow: without a disk the overflow policy applies to the bytes, too.
func TestBytesOverflow(t *testing.T) {
	for overflow, result := range map[spec.Overflow]string{spec.Coalesce: metrics.Coalesced, spec.DropOldest: metrics.Dropped} {
		t.Run(result, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, open := blockingSink()
				b := start(t, spec.Settings{Sinks: to(s), Bytes: boundBytes, Overflow: overflow, Batch: spec.Batch{Size: 1}})
				b.admit(updates(t, 1, 100)...)
				if s := b.statusOf("route0"); s.Bytes > mostBytes || s.Pending < 3 {
					t.Errorf("%+v, want %d bytes in memory", s, boundBytes)
				}
				if n := b.value("route_deltas_total", "route0", result); n < 80 {
					t.Errorf("%v are %s", n, result)
				}
				open()
				b.drain()
				b.balanced("route0")
			})
		})
	}
}

// TestBytesOfEvents: a delta that is larger than the bytes of the queue is delivered, and the
// events of a handler that wait for a sink count.
func TestBytesOfEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var up atomic.Bool
		s := &recordingSink{refuse: func(event.Event) error {
			if up.Load() {
				return nil
			}
			return errDown
		}}
		large := handleEach(func(*event.Delta) plugins.Result {
			return plugins.Result{Events: []plugins.Emit{{Data: make([]byte, 100*entryBytes)}}}
		})
		b, k := startOn(t, pipeline.Config{}, spec.Settings{
			Sinks: to(s), Handler: large, Bytes: boundBytes, Disk: 1 << 20, Batch: spec.Batch{Size: 1}, Retry: spec.Retry{Backoff: time.Minute, Max: time.Minute},
		})
		b.admit(updates(t, 1, 1)...)
		pass(time.Second)
		if s := b.statusOf("route0"); s.Bytes < 100*entryBytes {
			t.Errorf("%+v, the event does not count", s)
		}
		b.admit(updates(t, 2, 20)...)
		k.cut(b)
		if s := b.statusOf("route0"); s.OnDisk != 19 {
			t.Errorf("%+v, want 19 on disk", s)
		}
		up.Store(true)
		pass(time.Hour)
		perObject(t, s.got(), 1, 20)
		b.balanced("route0")
	})
}
