package kv_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/deltarouter/deltarouter/internal/kv"
	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/test/leaks"
	"github.com/deltarouter/deltarouter/test/must"
)

func set(key, value string) plugins.KVWrite {
	return plugins.KVWrite{Key: key, Value: []byte(value)}
}

func TestExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := kv.New(timer.Real(), true)
		w := set("a", "1")
		w.Expires = time.Now().Add(time.Minute)
		must.Succeed(t, s.Commit([]plugins.KVWrite{w, set("b", "2")}, 1000))
		s.Dirty()
		time.Sleep(time.Minute - time.Nanosecond)
		if _, ok := s.Get("a"); !ok {
			t.Error("it went too early")
		}
		time.Sleep(time.Nanosecond)
		if c := s.Dirty(); len(c.Put) != 0 || !slices.Equal(c.Removed, []string{"a"}) {
			t.Errorf("what ended has to go from the disk: %v", c)
		}
		if _, ok := s.Get("a"); ok || s.Size() != plugins.KVSize("b", []byte("2")) {
			t.Error("it is still there")
		}
		if _, ok := s.Get("b"); !ok {
			t.Error("the other one went, too")
		}
	})
}

// TestModel compares random commits with a map. A copy to which the results of Dirty are applied
// equals the store.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const limit = 1500
		var saved []kv.Entry
		model, disk := map[string]string{}, map[string]string{}
		s := kv.New(timer.Real(), true, saved...)
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			next := maps.Clone(model)
			var writes []plugins.KVWrite
			for range rapid.IntRange(0, 5).Draw(t, "writes") {
				w := set(fmt.Sprintf("k%d", rapid.IntRange(0, 20).Draw(t, "key")), rapid.StringN(0, 100, 100).Draw(t, "value"))
				if w.Delete = rapid.Bool().Draw(t, "delete"); w.Delete {
					delete(next, w.Key)
				} else {
					next[w.Key] = string(w.Value)
				}
				writes = append(writes, w)
			}
			size := sizeOf(next)
			err := s.Commit(writes, limit)
			if full := size > limit && size > sizeOf(model); full != errors.Is(err, plugins.ErrKVFull) {
				t.Fatalf("%d bytes of %d: %v", size, limit, err)
			}
			if err == nil {
				model = next
			}
			if s.Size() != sizeOf(model) {
				t.Fatalf("size %d, want %d", s.Size(), sizeOf(model))
			}
			if rapid.Bool().Draw(t, "cut") {
				apply(disk, s.Dirty())
				if !maps.Equal(disk, model) {
					t.Fatalf("on disk %v, want %v", disk, model)
				}
			}
		}
	})
}

func sizeOf(m map[string]string) (n int64) {
	for k, v := range m {
		n += plugins.KVSize(k, []byte(v))
	}
	return n
}

func apply(disk map[string]string, c kv.Changes) {
	for _, key := range c.Removed {
		delete(disk, key)
	}
	for _, e := range c.Put {
		disk[e.Key] = string(e.Value)
	}
}

func TestRestored(t *testing.T) {
	s := kv.New(timer.Real(), true, kv.Entry{Key: "a", Value: []byte("1")}, kv.Entry{Key: "old", Expires: time.Unix(1, 0)})
	if v, ok := s.Get("a"); !ok || string(v) != "1" {
		t.Error("it is not there")
	}
	if _, ok := s.Get("old"); ok {
		t.Error("what ended while nobody looked is there")
	}
	if c := s.Dirty(); len(c.Put) != 0 || !slices.Equal(c.Removed, []string{"old"}) {
		t.Errorf("got %v", c)
	}
}

// TestWithhold shows that the values leave the disk for good, and stay in memory.
func TestWithhold(t *testing.T) {
	// Guarantee: secrets-off-disk
	s := kv.New(timer.Real(), true, kv.Entry{Key: "old", Value: []byte("1")})
	must.Succeed(t, s.Commit([]plugins.KVWrite{set("new", "2"), {Key: "gone", Delete: true}}, 1000))
	if s.Withheld() {
		t.Error("it is withheld from the beginning")
	}
	s.Withhold()
	s.Withhold()
	if !s.Withheld() {
		t.Error("it is not withheld")
	}
	c := s.Dirty()
	slices.Sort(c.Removed)
	if len(c.Put) > 0 || !slices.Equal(c.Removed, []string{"gone", "new", "old"}) {
		t.Errorf("%v", c)
	}
	must.Succeed(t, s.Commit([]plugins.KVWrite{set("more", "3"), {Key: "new", Delete: true}}, 1000))
	if c := s.Dirty(); !c.Empty() {
		t.Errorf("%v", c)
	}
	for key, want := range map[string]string{"old": "1", "new": "", "more": "3"} {
		if v, _ := s.Get(key); string(v) != want {
			t.Errorf("%s is %q, want %q", key, v, want)
		}
	}
}

func TestMain(m *testing.M) { leaks.Main(m) }
