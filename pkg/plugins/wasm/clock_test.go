package wasm_test

import (
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
	"github.com/deltarouter/deltarouter/test/must"
)

// observer returns a guest that stores now_ns, 8 random bytes of rtr_v1 and 8 of WASI, the two
// clocks of WASI, and the monotonic clock twice, as the value of "key".
func observer() module {
	wasi := func(name string, params ...byte) function {
		return function{module: "wasi_snapshot_preview1", name: name, params: params, results: []byte{i32}}
	}
	clock := func(id, at int64) []byte {
		return code(constant(opI32, id), constant(opI64, 0), constant(opI32, at), opCall, 3, opDrop)
	}
	m := guest(
		constant(opI32, atBuffer), opCall, 0, 0x37, 3, 0, /* i64.store */
		constant(opI32, atBuffer+8), constant(opI32, 8), opCall, 1, opDrop,
		constant(opI32, atBuffer+16), constant(opI32, 8), opCall, 2, opDrop,
		clock(0, atBuffer+24), clock(1, atBuffer+32), clock(1, atBuffer+40),
		constant(opI32, atKey), constant(opI32, 3), constant(opI32, atBuffer), constant(opI32, 48), constant(opI64, 0), opCall, 4, opDrop,
		constant(opI64, 0),
	)
	m.imports = []function{
		named("now_ns"), named("random"), wasi("random_get", i32, i32), wasi("clock_time_get", i32, i64, i32), named("kv_set"),
	}
	m.data = map[uint32][]byte{atKey: []byte("key")}
	return m
}

// observed is the stored value of an observer.
type observed struct {
	now, random, wasiRandom, wall, mono, later uint64
}

func observe(t *testing.T, rights string, batches ...[]*event.Delta) (all []observed) {
	t.Helper()
	h := newHost()
	handler := h.mustOpen(t, withRights(t, observer(), "allow: {kv: true"+rights+"}"))
	for _, batch := range batches {
		run(t, handler, batch)
		v, _ := h.env.KV.Get("key")
		n := func(i int) uint64 { return binary.LittleEndian.Uint64(v[8*i:]) }
		all = append(all, observed{n(0), n(1), n(2), n(3), n(4), n(5)})
	}
	must.Report(t, handler.Close(t.Context()))
	return all
}

// at returns deltas that were seen at these times.
func at(t *testing.T, times ...time.Time) (batch []*event.Delta) {
	t.Helper()
	for i, seen := range times {
		d := *plugintest.Deltas(t)[i]
		d.Seen = seen
		batch = append(batch, &d)
	}
	return batch
}

// Without grants, the clock and the random numbers of a guest depend on the deltas only.
func TestMadeUp(t *testing.T) {
	// Guarantee: guest-deterministic
	early, late := time.Unix(1e9, 5), time.Unix(2e9, 7)
	batches := [][]*event.Delta{at(t, late, early), at(t, early), at(t, late, early), at(t, late.Add(time.Hour))}
	seen := observe(t, "", batches...)
	for i, want := range []time.Time{late, early, late, late.Add(time.Hour)} {
		if o := seen[i]; o.now != uint64(want.UnixNano()) || o.wall != o.now {
			t.Errorf("call %d: now_ns %d, WASI %d, want the newest delta's %d", i, o.now, o.wall, want.UnixNano())
		}
	}
	mono := uint64(0)
	for i, o := range seen {
		if o.mono <= mono || o.later <= o.mono {
			t.Errorf("call %d: the monotonic clock went from %d to %d to %d", i, mono, o.mono, o.later)
		}
		mono = o.later
	}
	if passed := seen[3].mono - seen[2].later; passed < uint64(time.Hour) || passed > uint64(time.Hour+time.Second) {
		t.Errorf("an hour later the monotonic clock moved by %v", time.Duration(passed)) //nolint:gosec // small
	}
	if seen[0].random != seen[2].random || seen[0].wasiRandom != seen[2].wasiRandom {
		t.Error("the same deltas, other numbers")
	}
	if seen[0].random == seen[1].random || seen[0].random == seen[0].wasiRandom {
		t.Error("other deltas, or further numbers, and the same came out")
	}
	if again := observe(t, "", batches...); !slices.Equal(seen, again) {
		t.Errorf("another instance sees something else:\n%v\n%v", seen, again)
	}
}

func TestReal(t *testing.T) {
	before := time.Now()
	batch := at(t, time.Unix(1e9, 5))
	seen := observe(t, ", clock: true, random: true", batch, batch)
	for _, o := range seen {
		for _, now := range []uint64{o.now, o.wall} {
			if now < uint64(before.UnixNano()) || now > uint64(time.Now().UnixNano()) {
				t.Errorf("it is %d", now)
			}
		}
	}
	if seen[0].random == seen[1].random || seen[0].wasiRandom == seen[1].wasiRandom {
		t.Error("the same numbers came twice")
	}
}

// One grant does not include the other.
func TestOnlyClock(t *testing.T) {
	batch := at(t, time.Unix(1e9, 5))
	clock, random := observe(t, ", clock: true", batch, batch), observe(t, ", random: true", batch, batch)
	if clock[0].random != clock[1].random || clock[0].wasiRandom != clock[1].wasiRandom || clock[0].now == uint64(batch[0].Seen.UnixNano()) {
		t.Error("with the clock, it has the random numbers too, or no clock")
	}
	if random[0].now != uint64(batch[0].Seen.UnixNano()) || random[0].wall != random[0].now || random[0].random == random[1].random {
		t.Error("with the random numbers, it has the clock too, or no random numbers")
	}
}
