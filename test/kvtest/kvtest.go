// Package kvtest has the contract of the kv of handlers: the tests that each implementation passes.
package kvtest

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

// start is the time at which the clocks of the tests begin. Values that expire are in the future of
// a server with a clock of its own.
var start = time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)

// Open returns an empty store.
type Open func(t must.T, clock timer.Clock) plugins.KV

// Contract runs the tests of the contract.
func Contract(t *testing.T, open Open) {
	t.Helper()
	t.Run("quota", func(t *testing.T) { quota(t, open) })
	t.Run("expiry", func(t *testing.T) { expiry(t, open) })
	t.Run("model", func(t *testing.T) { rapid.Check(t, func(rt *rapid.T) { calls(rt, open) }) })
}

func set(key, value string) plugins.KVWrite {
	return plugins.KVWrite{Key: key, Value: []byte(value)}
}

func quota(t *testing.T, open Open) {
	s := open(t, timer.NewFake(start))
	one := plugins.KVSize("a", []byte("1"))
	must.Succeed(t, s.Commit([]plugins.KVWrite{set("a", "1"), set("b", "2")}, 2*one))
	for name, writes := range map[string][]plugins.KVWrite{
		"one more":                       {set("c", "3")},
		"a longer value":                 {set("a", "11")},
		"removed twice, and two instead": {{Key: "a", Delete: true}, {Key: "a", Delete: true}, set("c", "3"), set("d", "4")},
	} {
		if err := s.Commit(writes, 2*one); !errors.Is(err, plugins.ErrKVFull) {
			t.Errorf("%s: %v", name, err)
		}
		if v, _ := s.Get("a"); string(v) != "1" || s.Size() != 2*one {
			t.Errorf("%s: something of it was done: %q, %d bytes", name, v, s.Size())
		}
	}
	must.Report(t, s.Commit([]plugins.KVWrite{set("c", "2"), set("c", "3"), {Key: "a", Delete: true}}, 2*one))
	if v, _ := s.Get("c"); string(v) != "3" || s.Size() != 2*one {
		t.Errorf("the last of two writes is %q, %d bytes", v, s.Size())
	}
	// After the limit was lowered, a write that reduces the size succeeds.
	must.Report(t, s.Commit([]plugins.KVWrite{set("c", "")}, one/2))
}

func expiry(t *testing.T, open Open) {
	clock := timer.NewFake(start)
	s := open(t, clock)
	w := set("a", "1")
	w.Expires = start.Add(time.Minute)
	must.Succeed(t, s.Commit([]plugins.KVWrite{w, set("b", "2")}, 1000))
	clock.Advance(start.Add(time.Minute - time.Nanosecond))
	if v, ok := s.Get("a"); !ok || string(v) != "1" {
		t.Errorf("it went too early: %q", v)
	}
	clock.Advance(start.Add(time.Minute))
	if _, ok := s.Get("a"); ok || s.Size() != plugins.KVSize("b", []byte("2")) {
		t.Error("it is still there")
	}
	if v, ok := s.Get("b"); !ok || string(v) != "2" {
		t.Errorf("the other one went, too: %q", v)
	}
}

// model is the expected content of a store with two calls.
type model struct {
	limit     int64
	shared    bool
	committed map[string]string
	revisions map[string]int // of committed; 0: there is none
	last      int            // revision
	calls     [2]call
}

// call is the expected state of one call.
type call struct {
	*kv.Overlay

	written map[string]*string // nil: removed
	used    map[string]int     // the revisions that the call has used
	over    bool
	stale   bool // another call has committed since its first write
}

// calls compares two calls over one store with maps. A call sees its own writes and earlier
// commits; a commit applies all writes or none; the limit holds. The store of several processes
// refuses the commit of a call that has used a value which the other has changed since.
func calls(t *rapid.T, open Open) {
	clock := timer.NewFake(start)
	store := open(t, clock)
	_, shared := store.(plugins.SharedKV)
	m := &model{limit: 400, shared: shared, committed: map[string]string{}, revisions: map[string]int{}}
	for i := range m.calls {
		m.calls[i] = call{Overlay: kv.NewOverlay(store, clock, m.limit), written: map[string]*string{}, used: map[string]int{}}
	}
	for range rapid.IntRange(1, 40).Draw(t, "steps") {
		i, key := rapid.IntRange(0, 1).Draw(t, "call"), rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "key")
		switch rapid.IntRange(0, 4).Draw(t, "step") {
		case 0, 1:
			value := string(make([]byte, rapid.IntRange(0, 200).Draw(t, "size")))
			m.write(t, i, key, &value)
		case 2:
			m.write(t, i, key, nil)
		case 3:
			m.commit(t, i)
		default:
			m.calls[i].Reset()
			m.calls[i] = call{Overlay: m.calls[i].Overlay, written: map[string]*string{}, used: map[string]int{}}
		}
		m.look(t, i, key)
		if got, want := store.Size(), m.size(); got != want {
			t.Fatalf("the store has %d bytes, want %d", got, want)
		}
	}
}

// size returns the bytes of the committed values after some writes.
func (m *model) size(all ...map[string]*string) (n int64) {
	view := maps.Clone(m.committed)
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

// use notes that a call uses a committed value.
func (m *model) use(i int, key string) {
	c := &m.calls[i]
	if _, known := c.used[key]; !known && !c.over {
		c.used[key] = m.revisions[key]
	}
}

func (m *model) write(t *rapid.T, i int, key string, value *string) {
	c := &m.calls[i]
	after := maps.Clone(c.written)
	after[key] = value
	size, before := m.size(after), m.size(c.written)
	if _, own := c.written[key]; !own {
		m.use(i, key)
	}
	var err error
	if value == nil {
		err = c.Delete(key)
	} else {
		err = c.Set(key, []byte(*value), 0)
	}
	full := size > m.limit && size > before
	switch {
	case c.over:
		if err == nil {
			t.Fatal("a write after the commit was accepted")
		}
	case c.stale && (err == nil || errors.Is(err, plugins.ErrKVFull)):
		full = err != nil
	case full != errors.Is(err, plugins.ErrKVFull) || !full && err != nil:
		t.Fatalf("%d bytes of %d after %d: %v", size, m.limit, before, err)
	}
	if !c.over && !full {
		c.written = after
	}
}

func (m *model) commit(t *rapid.T, i int) {
	c, other := &m.calls[i], &m.calls[1-i]
	size, before := m.size(c.written), m.size()
	conflict := false
	for key, revision := range c.used {
		conflict = conflict || m.shared && len(c.written) > 0 && m.revisions[key] != revision
	}
	err := c.Commit()
	switch {
	case conflict:
		if plugins.ClassOf(err) != plugins.Postponed {
			t.Fatalf("a commit after a conflict: %v", err)
		}
	case (err != nil) != (size > m.limit && size > before):
		t.Fatalf("commit of %d bytes of %d after %d: %v", size, m.limit, before, err)
	case err == nil:
		other.stale = other.stale || len(other.written) > 0
		for _, key := range slices.Sorted(maps.Keys(c.written)) {
			delete(m.committed, key)
			delete(m.revisions, key)
			if v := c.written[key]; v != nil {
				m.last++
				m.committed[key], m.revisions[key] = *v, m.last
			}
		}
	}
	*c = call{Overlay: c.Overlay, written: map[string]*string{}, used: map[string]int{}, over: true}
}

// look compares a value that a call sees.
func (m *model) look(t *rapid.T, i int, key string) {
	c := &m.calls[i]
	want, ok := m.committed[key]
	if v, there := c.written[key]; there {
		if ok = v != nil; ok {
			want = *v
		}
	} else {
		m.use(i, key)
	}
	if got, found := c.Get(key); found != ok || ok && string(got) != want {
		t.Fatalf("call %d sees %q of %q, %v", i, got, key, found)
	}
}
