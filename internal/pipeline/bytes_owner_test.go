package pipeline_test

import (
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/internal/pipeline"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
)

// ofTeam returns four routes of a team and one of the configuration, with their sinks.
func ofTeam(change func(r *spec.Settings)) (routes []spec.Settings, sinks []*recordingSink, open func()) {
	var opens []func()
	for _, id := range []string{"team/a", "team/b", "team/c", "team/d", "own"} {
		s, open := blockingSink()
		sinks, opens = append(sinks, s), append(opens, open)
		r := spec.Settings{Name: id, ID: id, Sinks: []spec.NamedSink{{Name: id, Sink: s}}, Bytes: boundBytes, Batch: spec.Batch{Size: 1}}
		change(&r)
		routes = append(routes, r)
	}
	return routes, sinks, func() {
		for _, open := range opens {
			open()
		}
	}
}

// together returns the bytes in memory and the deltas on disk of the routes of the team.
func (b *harness) together() (bytes int64, onDisk int) {
	b.t.Helper()
	for _, id := range []string{"team/a", "team/b", "team/c", "team/d"} {
		s := b.statusOf(id)
		bytes, onDisk = bytes+s.Bytes, onDisk+s.OnDisk
	}
	return bytes, onDisk
}

// TestOwnedBytesSpill: the routes of a team have as many bytes in memory together as one of them
// may have, and one delta each. All deltas are delivered in order, and other routes have their own.
func TestOwnedBytesSpill(t *testing.T) {
	// Guarantee: backlog-owned
	synctest.Test(t, func(t *testing.T) {
		routes, sinks, open := ofTeam(func(r *spec.Settings) { r.Disk = 1 << 20 })
		b, k := startOn(t, pipeline.Config{OwnedMemory: boundBytes}, routes...)
		for v := 1; v <= 100; v += 20 {
			b.admit(updates(t, v, v+19)...)
			k.cut(b)
		}
		if bytes, onDisk := b.together(); bytes > mostBytes+4*2*entryBytes || bytes < boundBytes/2 || onDisk < 4*80 {
			t.Errorf("%d bytes in memory, %d deltas on disk", bytes, onDisk)
		}
		if s := b.statusOf("own"); s.Pending != 100 || s.Bytes > mostBytes || s.Bytes < boundBytes/2 {
			t.Errorf("the route of the configuration has %+v", s)
		}
		open()
		b.drain()
		for i, s := range sinks {
			perObject(t, s.got(), 1, 100)
			b.balanced(routes[i].Name)
		}
	})
}

// TestOwnedBytesOverflow: without a disk, and with a full share of it, the overflow policy applies
// to the routes of a team together.
func TestOwnedBytesOverflow(t *testing.T) {
	for overflow, result := range map[spec.Overflow]string{spec.Coalesce: metrics.Coalesced, spec.DropOldest: metrics.Dropped} {
		t.Run(result, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				routes, _, open := ofTeam(func(r *spec.Settings) { r.Overflow = overflow })
				b, _ := startOn(t, pipeline.Config{OwnedMemory: 2 * boundBytes}, routes...)
				b.admit(updates(t, 1, 100)...)
				// coalesced, a route has a delta for each of the five objects
				if bytes, _ := b.together(); bytes > 2*boundBytes+4*7*entryBytes {
					t.Errorf("%d bytes in memory", bytes)
				}
				if n := b.value("route_deltas_total", "team/d", result); n < 80 {
					t.Errorf("%v are %s", n, result)
				}
				open()
				b.drain()
				b.balanced("team/d")
			})
		})
	}
}

// TestOwnedDisk: the routes of a team have a bound on disk together, beyond which overflow decides.
func TestOwnedDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		routes, sinks, open := ofTeam(func(r *spec.Settings) { r.Disk = 1 << 20 })
		b, k := startOn(t, pipeline.Config{OwnedDisk: 40 * entryBytes}, routes...)
		for v := 1; v <= 100; v += 20 {
			b.admit(updates(t, v, v+19)...)
			k.cut(b)
		}
		if _, onDisk := b.together(); onDisk > 120 {
			t.Errorf("%d deltas of the team are on disk", onDisk)
		}
		if n := b.value("route_deltas_total", "team/a", metrics.Coalesced); n == 0 {
			t.Error("nothing is coalesced")
		}
		if s := b.statusOf("own"); s.Pending != 100 || s.OnDisk < 80 {
			t.Errorf("the route of the configuration has %+v", s)
		}
		open()
		pass(time.Hour)
		b.drain()
		perObject(t, sinks[4].got(), 1, 100)
		for i := range routes {
			b.balanced(routes[i].Name)
		}
	})
}

// TestOwnedBytesRestored: after a restart the routes of a team read no more into memory than they
// may have together.
func TestOwnedBytesRestored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		routes, _, stop := ofTeam(func(r *spec.Settings) { r.Disk = 1 << 20 })
		crashed, k := startOn(t, pipeline.Config{}, routes...)
		crashed.admit(updates(t, 1, 100)...)
		k.cut(crashed)
		stop()
		saved := &flakyStore{fakeStore: fakeStore{}}
		for id := range k.fakeStore {
			saved.fakeStore[id] = maps.Clone(k.fakeStore[id])
		}
		routes, sinks, open := ofTeam(func(r *spec.Settings) { r.Disk = 1 << 20 })
		b := openAs(t, pipeline.Config{Store: saved, OwnedMemory: boundBytes}, routes...)
		for i := range routes {
			saved.restore(b, routes[i].Name)
		}
		if bytes, onDisk := b.together(); bytes > mostBytes+4*2*entryBytes || onDisk < 4*80 {
			t.Errorf("%d bytes in memory, %d deltas on disk", bytes, onDisk)
		}
		b.Start(t.Context())
		open()
		b.drain()
		for i, s := range sinks {
			perObject(t, s.got(), 1, 100)
			b.balanced(routes[i].Name)
		}
	})
}
