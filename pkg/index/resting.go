package index

import (
	"context"
	"hash/maphash"
	"iter"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/klauspost/compress/s2"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// resting compresses the objects at rest: those that have not changed for one to two periods. Most
// objects of a cluster do not change for minutes, and their texts are nearly all of the memory of a
// store.
//
// A pass visits each object that is not compressed. It works in turns, which take a tenth of the
// time of one CPU at most. A timer starts each turn. The timer is not set again if no object is
// left that may be compressed later, so a store has no method Close.
type resting struct {
	pace  pace
	timed atomic.Bool // a timer is set, or a turn works

	lock  sync.Mutex
	fresh []string // keys that have got a plain entry since the begin of the present pass

	working      sync.Mutex // guards the fields below
	saved        int64      // bytes that the present pass has saved
	due          []mark     // to be visited in the present pass
	kept         []mark     // visited in the present pass, and still plain
	texts        *s2.Dict
	dictionaries []*dictionary // of texts
	buffers      buffers
}

// pace is the time that the passes take.
type pace struct {
	period time.Duration // between two passes
	turn   time.Duration // of work
	least  int64         // bytes of a store below which all objects stay plain
	most   int64         // bytes of plain objects above which objects are compressed at once
}

// limitShare is the memory limit of Go, as a multiple of the memory of the plain objects.
const limitShare = 8

// usualPace returns the pace of a router. A dictionary takes 136 KiB, an eighth of the smallest
// store that has one.
func usualPace() pace {
	return pace{period: time.Minute, turn: 2 * time.Millisecond, least: 1 << 20, most: max(1<<20, debug.SetMemoryLimit(-1)/limitShare)}
}

// worthwhile is the number of bytes that a pass must save, beside more than half of the store, for
// the memory to be returned to the system at once. That takes one collection; Go returns memory by
// itself only in the course of minutes. So it follows the first pass after the first list, and not
// those that compress some objects which have changed.
const worthwhile = 4 << 20

// turnShare is the time from a turn to the next, as a multiple of the time of the turn.
const turnShare = 9

// hastenShare is the pause between two turns of [Store.Compress], as a multiple of a turn.
const hastenShare = 2

// mostDictionaries bounds the dictionaries of a store. The objects of a watch share one Resource,
// or a few: the informer replaces it when it learns the kind.
const mostDictionaries = 4

// mark is the key of an object that is not compressed. The key of each such object is in fresh, or
// has a mark.
type mark struct {
	key     string
	version uint64 // of the object at the last pass; 0: there was none
	tried   bool   // the object of that version cannot be compressed
}

// seed is that of all hashes.
var seed = maphash.MakeSeed()

func versionOf(o *event.Object) uint64 { return maphash.String(seed, o.ResourceVersion()) | 1 }

// mark records that a key has a plain entry. before is the previous entry, or nil.
func (s *Store) mark(key string, before entry) {
	r := &s.resting
	marked := isPlain(before)
	small := s.bytes.Load() < r.pace.least
	if marked && (small || r.timed.Load()) {
		return
	}
	if !marked {
		r.lock.Lock()
		r.fresh = tidy(s.live.Load(), append(r.fresh, key), func(key string) string { return key })
		r.lock.Unlock()
	}
	if !small && r.timed.CompareAndSwap(false, true) {
		time.AfterFunc(r.pace.period, s.turn)
	}
}

// turn works on a pass, and returns the memory that the pass has saved to the system if that is
// worthwhile: without a lock, because it takes a collection.
func (s *Store) turn() {
	if saved := s.work(); saved >= worthwhile && saved > s.bytes.Load() {
		debug.FreeOSMemory()
	}
}

// work continues the present pass, or begins the next one, and sets the timer for the next turn. It
// returns the number of bytes that the pass has saved, if it has ended.
func (s *Store) work() (saved int64) {
	r, v, began := &s.resting, s.live.Load(), time.Now()
	r.working.Lock()
	defer r.working.Unlock()
	if len(r.due) == 0 {
		for _, d := range r.dictionaries {
			d.recent.clear()
		}
		r.begin(v)
	}
	if s.pass(v, began, false) {
		time.AfterFunc(turnShare*time.Since(began), s.turn)
		return 0
	}
	r.due, r.buffers = nil, buffers{} // they may be large
	saved, r.saved = r.saved, 0
	r.lock.Lock()
	defer r.lock.Unlock()
	if s.bytes.Load() >= r.pace.least && (len(r.fresh) > 0 || slices.ContainsFunc(r.kept, func(m mark) bool { return !m.tried })) {
		time.AfterFunc(r.pace.period, s.turn)
		return saved
	}
	r.timed.Store(false)
	return saved
}

// pass visits the due objects until the time of a turn is over, and reports whether more are due.
func (s *Store) pass(v *view, began time.Time, atOnce bool) (more bool) {
	r := &s.resting
	for len(r.due) > 0 && time.Since(began) < r.pace.turn {
		some := r.due[:min(len(r.due), 32)]
		r.due = r.due[len(some):]
		for _, m := range some {
			if s.visit(v, &m, atOnce) {
				r.kept = append(r.kept, m)
			}
		}
	}
	return len(r.due) > 0
}

// Compress compresses the present objects at once, at rest or not: most objects of a first list do
// not change soon. It takes a third of the time of one CPU at most, returns when all are compressed
// or ctx is done, and leaves a small store as it is.
func (s *Store) Compress(ctx context.Context) {
	if s.bytes.Load() < s.resting.pace.least {
		return
	}
	for more := s.hasten(true); more; more = s.hasten(false) {
		select {
		case <-time.After(hastenShare * s.resting.pace.turn):
		case <-ctx.Done():
			return
		}
	}
}

// hasten works on a pass that compresses all plain objects, and reports whether some are left.
func (s *Store) hasten(begin bool) (more bool) {
	r, v := &s.resting, s.live.Load()
	r.working.Lock()
	defer r.working.Unlock()
	if begin {
		r.begin(v)
	}
	if more = s.pass(v, time.Now(), true); !more {
		r.due, r.buffers, r.saved = nil, buffers{}, 0 // the caller returns the memory
	}
	return more
}

// relieve compresses objects at once, at rest or not, while the plain ones take too much memory. It
// visits some only, because there may be many that cannot be compressed.
func (s *Store) relieve(v *view) {
	r := &s.resting
	if s.plain.Load() <= r.pace.most {
		return
	}
	r.working.Lock()
	defer r.working.Unlock()
	for range 64 {
		if s.plain.Load() <= r.pace.most {
			return
		}
		if len(r.due) == 0 {
			r.begin(v)
		}
		if len(r.due) == 0 {
			return
		}
		m := r.due[0]
		r.due = r.due[1:]
		if s.visit(v, &m, true) {
			r.kept = append(r.kept, m)
		}
	}
}

// begin begins a pass.
func (r *resting) begin(v *view) {
	r.lock.Lock()
	fresh := r.fresh
	r.fresh = nil
	r.lock.Unlock()
	r.due = slices.Grow(r.due, len(fresh)+len(r.kept))
	for _, key := range fresh {
		r.due = append(r.due, mark{key: key})
	}
	r.due = tidy(v, append(r.due, r.kept...), func(m mark) string { return m.key })
	r.kept = nil
	if r.texts == nil {
		r.texts = newTexts(v.sample(r.due))
	}
}

// tidy removes keys of a list if these may be more than half of it: those of objects that were
// deleted, and all but one of an object that was created again.
func tidy[T any](v *view, list []T, key func(T) string) []T {
	if len(list) < 1000+2*int(v.count.Load()) {
		return list
	}
	slices.SortFunc(list, func(a, b T) int { return strings.Compare(key(a), key(b)) })
	list = slices.CompactFunc(list, func(a, b T) bool { return key(a) == key(b) })
	return slices.DeleteFunc(list, func(e T) bool { return !isPlain(v.entry(key(e))) })
}

// sample yields some of the marked objects.
func (v *view) sample(marks []mark) iter.Seq[*event.Object] {
	return func(yield func(*event.Object) bool) {
		for i := 0; i < len(marks); i += 1 + len(marks)/64 {
			if p, ok := v.entry(marks[i].key).(*plain); ok && !yield(p.object) {
				return
			}
		}
	}
}

// visit compresses the object of a mark if it has not changed since the last pass, or at once.
// keep: it is still plain.
func (s *Store) visit(v *view, m *mark, atOnce bool) (keep bool) {
	p, ok := v.entry(m.key).(*plain)
	if !ok {
		return false
	}
	if version := versionOf(p.object); version != m.version {
		m.version, m.tried = version, false
		if !atOnce {
			return true
		}
	}
	d := s.resting.dictionary(p.object.Resource())
	if m.tried || d == nil {
		m.tried = true
		return true
	}
	c := d.compress(p, &s.resting.buffers)
	m.tried = c == nil
	return c == nil || !s.exchange(v, p, c)
}

// dictionary returns the dictionary of a resource; nil: there is none.
func (r *resting) dictionary(of *event.Resource) *dictionary {
	for _, d := range r.dictionaries {
		if d.resource == of {
			return d
		}
	}
	if r.texts == nil || len(r.dictionaries) == mostDictionaries {
		return nil
	}
	d := &dictionary{resource: of, texts: r.texts}
	r.dictionaries = append(r.dictionaries, d)
	return d
}

// exchange replaces an entry by its compressed form, unless the object has changed.
func (s *Store) exchange(v *view, p *plain, c *compressed) (done bool) {
	s.swapping.Lock()
	defer s.swapping.Unlock()
	if s.live.Load() != v {
		return false
	}
	v.lock.Lock()
	defer v.lock.Unlock()
	if now, _ := v.entry(p.key).(*plain); now != p {
		return false
	}
	v.indexer.Update(p.key, c)
	s.account(p, c)
	s.resting.saved += int64(p.size() - c.size())
	return true
}
