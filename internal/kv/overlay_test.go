package kv_test

import (
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/deltarouter/deltarouter/internal/kv"
	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/test/must"
)

// TestOverlayModel compares two overlays over one store with maps. A call sees its own writes and
// earlier commits; a commit applies all writes or none; the limit holds.
func TestOverlayModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		const limit = 400
		clock := timer.NewFake(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
		store := kv.New(clock, false)
		committed := map[string]string{}
		overlays := []*kv.Overlay{kv.NewOverlay(store, clock, limit), kv.NewOverlay(store, clock, limit)}
		written := []map[string]*string{{}, {}} // nil: removed
		// stale: another call has committed since the first write
		over, stale := []bool{false, false}, []bool{false, false}
		used := func(all ...map[string]*string) (n int64) {
			view := maps.Clone(committed)
			for _, w := range all {
				for key, v := range w {
					if delete(view, key); v != nil {
						view[key] = *v
					}
				}
			}
			for key, v := range view {
				n += plugins.KVSize(key, []byte(v))
			}
			return n
		}
		write := func(i int, key string, value *string, do func() error) {
			after := maps.Clone(written[i])
			after[key] = value
			size, before := used(after), used(written[i])
			err := do()
			full := size > limit && size > before
			switch {
			case over[i]:
				if err == nil {
					rt.Fatal("a write after the commit was accepted")
				}
			case stale[i] && (err == nil || errors.Is(err, plugins.ErrKVFull)):
				full = err != nil
			case full != errors.Is(err, plugins.ErrKVFull) || !full && err != nil:
				rt.Fatalf("%d bytes of %d after %d: %v", size, limit, before, err)
			}
			if !over[i] && !full {
				written[i] = after
			}
		}
		for range rapid.IntRange(1, 80).Draw(rt, "steps") {
			i, key := rapid.IntRange(0, 1).Draw(rt, "call"), rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "key")
			o := overlays[i]
			switch rapid.IntRange(0, 4).Draw(rt, "step") {
			case 0, 1:
				value := string(make([]byte, rapid.IntRange(0, 200).Draw(rt, "size")))
				write(i, key, &value, func() error { return o.Set(key, []byte(value), 0) })
			case 2:
				write(i, key, nil, func() error { return o.Delete(key) })
			case 3:
				size, before := used(written[i]), used()
				if err := o.Commit(); (err != nil) != (size > limit && size > before) {
					rt.Fatalf("commit of %d bytes of %d after %d: %v", size, limit, before, err)
				} else if err == nil {
					stale[1-i] = stale[1-i] || len(written[1-i]) > 0
					for key, v := range written[i] {
						if delete(committed, key); v != nil {
							committed[key] = *v
						}
					}
				}
				written[i], over[i], stale[i] = map[string]*string{}, true, false
			default:
				o.Reset()
				written[i], over[i], stale[i] = map[string]*string{}, false, false
			}
			for i, o := range overlays {
				for _, key := range []string{"a", "b", "c"} {
					want, ok := committed[key]
					if v, there := written[i][key]; there {
						if ok = v != nil; ok {
							want = *v
						}
					}
					if got, found := o.Get(key); found != ok || ok && string(got) != want {
						rt.Fatalf("call %d sees %q of %q, %v", i, got, key, found)
					}
				}
			}
		}
	})
}

// TestOverlayExpiry shows that a value also expires for the call that wrote it, and that a century
// counts as for ever.
func TestOverlayExpiry(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	clock := timer.NewFake(start)
	store := kv.New(clock, false)
	o := kv.NewOverlay(store, clock, 1000)
	must.Succeed(t, errors.Join(o.Set("short", []byte("1"), 1000), o.Set("long", nil, 1<<62), o.Set("never", nil, 0)))
	seen := func(from interface{ Get(string) ([]byte, bool) }) (keys []string) {
		for _, key := range []string{"short", "long", "never"} {
			if _, ok := from.Get(key); ok {
				keys = append(keys, key)
			}
		}
		return keys
	}
	clock.Advance(start.Add(999 * time.Millisecond))
	if got := seen(o); len(got) != 3 {
		t.Errorf("too early: %q", got)
	}
	clock.Advance(start.Add(time.Second))
	if want := []string{"long", "never"}; !slices.Equal(seen(o), want) || o.Commit() != nil || !slices.Equal(seen(store), want) {
		t.Errorf("the call sees %q, the store has %q", seen(o), seen(store))
	}
}
