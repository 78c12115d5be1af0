package queue

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// modelEntry is a pending delta of the model, which is a plain list in the order of arrival.
type modelEntry struct {
	object, lane string
	delta        *event.Delta
	since        time.Time
	attempted    bool
	taken        bool
	failed       bool
	e            *Entry
}

// add adds a delta with its lane, and opens no window.
func add(q *Queue, d *event.Delta, key Key) *Entry {
	e := q.Add(Item{Delta: d, Unseen: true})
	q.place(e, key)
	return e
}

// queueModel checks the queue against a list with linear searches.
type queueModel struct {
	t       *rapid.T
	tb      testing.TB
	q       Queue
	pending []*modelEntry
	delayed map[string]int // lane → until
	now     int
	version int
	batches [][]*Entry
	written map[uint64]*event.Delta // the sum of all hand-overs
}

// handOver applies the changes and checks that exactly the pending deltas are written.
func (m *queueModel) handOver(t *rapid.T) {
	before := len(m.written)
	put := map[uint64]bool{}
	gone := m.q.HandOver(func(e *Entry) {
		put[e.Saved.ID], m.written[e.Saved.ID] = true, e.Delta
	})
	for _, number := range gone {
		if m.written[number] == nil || put[number] {
			t.Fatalf("%d of %d is gone, and was not handed over before", number, before)
		}
		delete(m.written, number)
	}
	for _, o := range m.pending {
		if m.written[o.e.Saved.ID] != o.e.Delta {
			t.Fatalf("%s is pending, written is %v", show(o.e.Delta), m.written[o.e.Saved.ID])
		}
	}
	if len(m.written) != len(m.pending) {
		t.Fatalf("%d written, %d pending", len(m.written), len(m.pending))
	}
}

func (m *queueModel) at() time.Time { return time.Unix(int64(m.now), 0) }

func (m *queueModel) laneBusy(lane string) bool {
	return slices.ContainsFunc(m.pending, func(o *modelEntry) bool { return o.lane == lane && o.taken })
}

func (m *queueModel) first(match func(*modelEntry) bool) *modelEntry {
	if i := slices.IndexFunc(m.pending, match); i >= 0 {
		return m.pending[i]
	}
	return nil
}

// canRun lists the lanes that a worker could take from.
func (m *queueModel) canRun() map[string]bool {
	lanes := map[string]bool{}
	for _, o := range m.pending {
		until, late := m.delayed[o.lane]
		if m.laneBusy(o.lane) || late && until > m.now {
			continue
		}
		head := m.first(func(x *modelEntry) bool { return x.lane == o.lane })
		if m.first(func(x *modelEntry) bool { return x.object == head.object }) == head {
			lanes[o.lane] = true
		}
	}
	return lanes
}

func (m *queueModel) find(e *Entry) *modelEntry {
	return m.first(func(o *modelEntry) bool { return o.e == e })
}

func (m *queueModel) add(t *rapid.T) {
	object := rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "object")
	lane := rapid.SampledFrom([]string{object, object, "group", "other"}).Draw(t, "lane")
	m.version++
	d := newDelta(m.tb, event.Updated, object, "uid-"+object, m.version+1)
	in := ObjectKey(d)
	if lane != object {
		in = Key{Name: lane}
	}
	m.pending = append(m.pending, &modelEntry{object: object, lane: lane, delta: d, since: d.Seen, e: add(&m.q, d, in)})
}

func (m *queueModel) take(t *rapid.T) {
	lanes := m.canRun()
	m.q.Lanes.Wake(m.at())
	batch := m.q.Take(rapid.IntRange(1, 4).Draw(t, "limit"), nil, nil)
	if (len(batch) == 0) != (len(lanes) == 0) {
		t.Fatalf("took %d deltas, lanes that can run: %v", len(batch), lanes)
	}
	for i, e := range batch {
		o := m.find(e)
		if o.taken {
			t.Fatalf("%s was taken twice", show(o.delta))
		}
		if !lanes[o.lane] {
			t.Fatalf("lane %s cannot run, or ran before in this batch", o.lane)
		}
		for _, x := range m.pending[:slices.Index(m.pending, o)] {
			if (x.lane == o.lane || x.object == o.object) && !(x.taken && x.lane == o.lane && slices.Contains(batch[:i], x.e)) {
				t.Fatalf("%s in lane %s was taken before %s in lane %s", show(o.delta), o.lane, show(x.delta), x.lane)
			}
		}
		if o.failed && i > 0 && batch[i-1].lane == e.lane && m.find(batch[i-1]).failed {
			t.Fatal("more was taken of a lane behind one that failed")
		}
		o.taken, o.attempted = true, true
	}
	for i := 1; i < len(batch); i++ {
		if lane := m.find(batch[i]).lane; lane != m.find(batch[i-1]).lane && !lanes[lane] {
			t.Fatal("the entries of a lane do not stand together")
		}
	}
	if len(batch) > 0 {
		m.batches = append(m.batches, batch)
	}
}

// end ends a batch: of each lane some entries from the front are done, and the lane may be delayed.
func (m *queueModel) end(t *rapid.T) {
	if len(m.batches) == 0 {
		t.Skip("no batch")
	}
	n := rapid.IntRange(0, len(m.batches)-1).Draw(t, "batch")
	batch := m.batches[n]
	m.batches = slices.Delete(m.batches, n, n+1)
	for i := 0; i < len(batch); {
		lane, s, failed := m.find(batch[i]).lane, batch[i].lane, false
		for ; i < len(batch) && batch[i].lane == s; i++ {
			e := batch[i]
			o := m.find(e)
			e.taken, o.taken = false, false
			if failed = failed || rapid.Bool().Draw(t, "fails"); failed {
				e.Progress.Tries++
				o.failed = true
				continue
			}
			m.pending = slices.DeleteFunc(m.pending, func(x *modelEntry) bool { return x == o })
			m.q.Remove(e)
			if i+1 == len(batch) {
				i++
				break
			}
			i--
			batch = slices.Delete(batch, i+1, i+2)
		}
		delete(m.delayed, lane)
		var at time.Time
		if failed && rapid.Bool().Draw(t, "delayed") {
			m.delayed[lane] = m.now + rapid.IntRange(1, 3).Draw(t, "delay")
			at = time.Unix(int64(m.delayed[lane]), 0)
		}
		m.q.Release(s, at)
	}
}

func (m *queueModel) coalesce(t *rapid.T) {
	object := rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "object")
	s := m.q.slots[Key{"widgets", "default", object}]
	if s == nil || s.object.len == 0 {
		t.Skip("nothing pending")
	}
	var waits []*modelEntry
	for _, o := range m.pending {
		if o.object == object && !o.attempted {
			waits = append(waits, o)
		}
	}
	coalesced := 0
	if e := s.object.tail; e.stage == Waiting {
		coalesced, _ = m.q.Coalesce(e)
	}
	if coalesced != max(0, len(waits)-1) {
		t.Fatalf("%d deltas wait, all updates: %d coalesced", len(waits), coalesced)
	}
	if len(waits) < 2 {
		return
	}
	// The net change is in the lane of the last delta: at the place of the last one of these, in
	// order, that was coalesced within that lane.
	left := s.object.tail
	first, last := waits[0], waits[len(waits)-1]
	if left.Delta.Old != first.delta.Old || left.Delta.New != last.delta.New || !left.Since.Equal(first.since) {
		t.Fatalf("%s to %s gave %s", show(first.delta), show(last.delta), show(left.Delta))
	}
	stays := last
	for i := len(waits) - 2; i >= 0 && waits[i].lane == last.lane; i-- {
		stays = waits[i]
	}
	for _, o := range waits {
		if o != stays {
			m.pending = slices.DeleteFunc(m.pending, func(x *modelEntry) bool { return x == o })
		}
	}
	stays.delta, stays.since, stays.e = left.Delta, first.since, left
}

func (m *queueModel) drop(t *rapid.T) {
	e := m.q.Head.ages[Waiting].head
	o := m.first(func(o *modelEntry) bool { return !o.attempted })
	if e == nil || o == nil {
		if e != nil || o != nil {
			t.Fatalf("oldest waiting is %v, want %v", e, o)
		}
		t.Skip("nothing waits")
	}
	gone := m.find(e)
	m.pending = slices.DeleteFunc(m.pending, func(x *modelEntry) bool { return x == gone })
	m.q.Remove(e)
}

// check compares the bookkeeping of the queue with the model after each step.
func (m *queueModel) check(t *rapid.T) {
	if m.q.Len() != len(m.pending) {
		t.Fatalf("%d pending, want %d", m.q.Len(), len(m.pending))
	}
	head, tail := int64(0), int64(0)
	for e := range m.q.Head.all() {
		head += e.bytes
	}
	for e := m.q.Tail.entries.head; e != nil; e = e.links[byAge].next {
		tail += e.bytes
	}
	if m.q.Head.bytes != head || m.q.Tail.bytes != tail || head < int64(m.q.Head.Len())*deltaBytes {
		t.Fatalf("%d and %d bytes, want %d and %d", m.q.Head.bytes, m.q.Tail.bytes, head, tail)
	}
	readyLen := 0
	for s := m.q.Lanes.ready.head; s != nil; s = s.next {
		if s.state != ready || s.lane.len == 0 {
			t.Fatalf("lane %v of %d is in the ready list in state %d", s.key, s.lane.len, s.state)
		}
		readyLen += s.lane.len
	}
	if readyLen != m.q.Lanes.readyLen {
		t.Fatalf("readyLen %d, want %d", m.q.Lanes.readyLen, readyLen)
	}
	for name, s := range m.q.slots {
		if s.key != name || s.lane.len == 0 && s.object.len == 0 {
			t.Fatalf("slot %v of %v is empty and still there", s.key, name)
		}
		var lane, object []*event.Delta
		for e := s.lane.head; e != nil; e = e.links[byLane].next {
			lane = append(lane, e.Delta)
		}
		for e := s.object.head; e != nil; e = e.links[byObject].next {
			object = append(object, e.Delta)
		}
		var wantLane, wantObject []*event.Delta
		for _, o := range m.pending {
			if in := (Key{Name: o.lane}); in == name || ObjectKey(o.delta) == name && o.lane == o.object {
				wantLane = append(wantLane, o.delta)
			}
			if ObjectKey(o.delta) == name {
				wantObject = append(wantObject, o.delta)
			}
		}
		if !slices.Equal(lane, wantLane) || !slices.Equal(object, wantObject) {
			t.Fatalf("slot %v has other deltas than the model", name)
		}
	}
}

func TestQueueModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := &queueModel{t: rt, tb: t, delayed: map[string]int{}, written: map[uint64]*event.Delta{}}
		m.q.Changes.On = true
		rt.Repeat(map[string]func(*rapid.T){
			"add":  m.add,
			"add2": m.add,
			"take": m.take,
			"end":  m.end,
			"fold": m.coalesce,
			"drop": m.drop,
			"hand": m.handOver,
			"wait": func(*rapid.T) { m.now++ },
			"":     m.check,
		})
		m.now += 100
		for m.q.Len() > 0 { // all deltas can be finished in the end
			m.q.Lanes.Wake(m.at())
			batch := m.q.Take(3, nil, nil)
			if len(batch) == 0 && len(m.batches) == 0 {
				rt.Fatalf("stuck with %d deltas pending", m.q.Len())
			}
			m.batches = append(m.batches, batch)
			for _, batch := range m.batches {
				lanes := map[*Lane]bool{}
				for _, e := range batch {
					e.taken, lanes[e.lane] = false, true
				}
				for _, e := range batch {
					m.q.Remove(e)
				}
				for lane := range lanes {
					m.q.Release(lane, time.Time{})
				}
			}
			m.batches = nil
		}
		if len(m.q.slots) > 0 || m.q.Lanes.readyLen != 0 || len(m.q.Lanes.delayed) > 0 {
			rt.Fatalf("left: %d slots, %d ready, %d delayed", len(m.q.slots), m.q.Lanes.readyLen, len(m.q.Lanes.delayed))
		}
	})
}

// TestQueueReuses: a steady flow allocates nothing in the queue.
func TestQueueReuses(t *testing.T) {
	var q Queue
	q.Changes.On = true
	var deltas []*event.Delta
	for i := range 64 {
		deltas = append(deltas, newDelta(t, event.Added, fmt.Sprint("x", i), "u", 1))
	}
	batch := make([]*Entry, 0, 64)
	if n := testing.AllocsPerRun(100, func() {
		for _, d := range deltas {
			add(&q, d, ObjectKey(d))
		}
		batch = q.Take(64, batch[:0], nil)
		for _, e := range batch {
			lane := e.lane
			e.taken = false
			q.Remove(e)
			q.Release(lane, time.Time{})
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestOrderAfterRetry: attempted entries of an object keep their order when some of them are
// retried, because a changed route takes them over in that order.
func TestOrderAfterRetry(t *testing.T) {
	var q Queue
	first, second := newDelta(t, event.Updated, "a", "u", 2), newDelta(t, event.Deleted, "a", "u", 3)
	add(&q, first, ObjectKey(first))
	add(&q, second, ObjectKey(second))
	batch := q.Take(2, nil, nil)
	for _, e := range batch {
		e.taken = false
	}
	q.Release(batch[0].lane, time.Time{})
	q.Take(1, nil, nil)
	attempts := q.Head.ages[Attempted]
	if attempts.len != 2 || attempts.head.Delta != first || attempts.tail.Delta != second {
		t.Errorf("%v comes before %v", attempts.head.Delta, attempts.tail.Delta)
	}
}

// TestRestBehindRetry: an entry in a debounce window is not taken together with a retried entry
// before it in its lane.
func TestRestBehindRetry(t *testing.T) {
	q, now := Queue{Lanes: Lanes{window: Window{Quiet: time.Minute, Max: time.Hour}}}, time.Unix(1000, 0)
	o := func(version string) *event.Delta {
		object, err := event.ParseObject(&event.Resource{}, `{"metadata":{"name":"a","uid":"u","resourceVersion":"`+version+`"}}`)
		if err != nil {
			t.Fatal(err)
		}
		return &event.Delta{Source: "s", Op: event.Updated, New: object}
	}
	add := func(version string) *Entry {
		d := o(version)
		e := q.Add(Item{Delta: d, Unseen: true})
		q.Place(e, ObjectKey(d), now)
		return e
	}
	first := add("1")
	if got := q.Take(8, nil, nil); len(got) > 0 {
		t.Fatal("taken at once")
	}
	now = now.Add(time.Minute)
	q.Lanes.Wake(now)
	if got := q.Take(8, nil, nil); len(got) != 1 || got[0] != first {
		t.Fatalf("%d are taken after the quiet period", len(got))
	}
	second := add("2") // comes while it is with a worker, which returns it without an attempt
	first.taken = false
	q.Release(first.lane, now.Add(time.Second))
	now = now.Add(time.Second)
	q.Lanes.Wake(now)
	if got := q.Take(8, nil, nil); len(got) != 1 || got[0] != first {
		t.Fatalf("%d are taken, want the one that is tried again", len(got))
	}
	lane := first.lane
	first.taken = false
	q.Remove(first)
	q.Release(lane, time.Time{})
	if got := q.Take(8, nil, nil); len(got) > 0 {
		t.Fatal("taken before it was quiet")
	}
	q.Lanes.Wake(now.Add(time.Minute))
	if got := q.Take(8, nil, nil); len(got) != 1 || got[0] != second || q.Lanes.debouncingLen != 0 {
		t.Fatalf("%d are taken in the end, %d rest", len(got), q.Lanes.debouncingLen)
	}
}
