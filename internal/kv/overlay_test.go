package kv_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/internal/kv"
	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/test/kvtest"
	"github.com/deltarouter/deltarouter/test/must"
)

func TestContract(t *testing.T) {
	kvtest.Contract(t, func(_ must.T, clock timer.Clock) plugins.KV { return kv.New(clock, false) })
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

// TestOverlayUndo shows that Undo drops the writes since the last Keep, with their room, and no
// others.
func TestOverlayUndo(t *testing.T) {
	clock := timer.NewFake(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	store := kv.New(clock, false, kv.Entry{Key: "old", Value: []byte("0")})
	o := kv.NewOverlay(store, clock, 3*plugins.KVSize("old", []byte("0")))
	set := func(key, value string) { t.Helper(); must.Succeed(t, o.Set(key, []byte(value), 0)) }
	set("one", "1")
	o.Keep()
	set("one", "2")
	set("one", "3")
	set("two", "2")
	must.Succeed(t, o.Delete("old"))
	o.Undo()
	set("six", "6") // there is room for it only if two takes none
	o.Keep()
	set("one", "4")
	o.Undo()
	if !o.End() || o.Set("late", nil, 0) == nil {
		t.Error("the call has not ended, or has no writes")
	}
	must.Succeed(t, o.Commit())
	for key, want := range map[string]string{"one": "1", "two": "", "old": "0", "six": "6"} {
		if got, _ := store.Get(key); string(got) != want {
			t.Errorf("%s: got %q, want %q", key, got, want)
		}
	}
}
