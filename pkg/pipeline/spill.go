package pipeline

import (
	"context"
	"log/slog"
	"maps"
	"time"

	"github.com/deltarouter/deltarouter/pkg/checkpoint"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// Store is where the end of a queue lies that does not fit into memory: the state file, into which the cuts go that
// [Pipeline.Dirty] hands over. It is safe for concurrent use.
type Store interface {
	// ReadRoute returns a part of what a route owes, in the order of the ids, as of the last cut that was written.
	ReadRoute(name string, part checkpoint.Part) ([]checkpoint.Owed, error)
	// Soon asks for a cut, because what waits for it takes memory. It does not block.
	Soon()
	// Rename makes what a route owes under its old name its debt under the new one: before what is owed there, in the same order, with
	// the same ids. It writes first what was handed over, or is to be, at the time of the call.
	// What is owed there with ids up to upTo is given higher ones if need be, see checkpoint.DB.Rename. If it fails it can be called again.
	Rename(ctx context.Context, was, name string, upTo uint64) error
}

const (
	// inFlight is how much a route may hold on its way to the disk, in bytes of its objects' JSON.
	inFlight = 16 << 20
	// chunk is how many deltas are read back at a time.
	chunk = 1000
	// readAgain is the pause after a read that failed.
	readAgain = time.Second
	// deltaBytes is what a delta takes beside its objects' JSON.
	deltaBytes = 256
)

// tail is the end of a queue, behind the head, which is what the rest of the queue is about. A delta that comes when the head is full,
// or when there is a tail already, is in memory (stage spilled) until a cut with it is on disk, and is then no more than one in a
// count. What is on disk alone has ids higher than after, is none of the entries in memory, and is never changed: it is read back in the
// order of the ids when the head has room.
type tail struct {
	slots  map[id]*slot // by object, those in memory: they fold if the disk has no room
	bytes  int64        // of those in memory
	n      int          // on disk alone
	after  uint64
	since  time.Time // when what came before it was seen: none is older
	onDisk int64     // bytes that the route takes on disk, of head and tail, at the last cut
	// gone are those that were folded or dropped after they had been handed over, until they are gone on disk too; true: that they are
	// is handed over.
	gone    map[uint64]bool
	reading bool
	// before: ids up to this one were given in a life before this one, or by a route of another name. They count as attempted.
	before uint64
	// counted: above this one a delta that has passed the filter was counted as matched.
	counted uint64
	held    bool // what comes first is not under the route's name yet, see heir
}

// tailed reports whether there is a tail.
func (q *queue) tailed() bool { return q.tail.held || q.tail.n > 0 || q.ages[spilled].len > 0 }

// headLen is how many deltas are in the head.
func (q *queue) headLen() (n int) {
	for _, l := range q.ages[spilled+1:] {
		n += l.len
	}
	return n
}

// spill owes d at the end of the tail.
func (q *queue) spill(d *event.Delta) *entry {
	e := reuse(&q.freeEntries)
	e.delta, e.since = d, d.Seen
	q.changes.added(e)
	q.toTail(e)
	return e
}

func (q *queue) toTail(e *entry) {
	name := objectID(e.delta)
	s := q.tail.slots[name]
	if s == nil {
		s = reuse(&q.freeSlots)
		s.id, s.inTail = name, true
		if q.tail.slots == nil {
			q.tail.slots = map[id]*slot{}
		}
		q.tail.slots[name] = s
	}
	if !q.tailed() {
		q.tail.after, q.tail.since = max(e.id, 1)-1, e.since
	}
	e.stage, e.object = spilled, s
	s.object.push(e, byObject)
	q.ages[spilled].push(e, byAge)
	q.tail.bytes += size(e.delta)
}

// leaveTail takes an entry out of the lists of the tail.
func (q *queue) leaveTail(e *entry) {
	q.tail.bytes -= size(e.delta)
	q.ages[spilled].remove(e, byAge)
	e.object.object.remove(e, byObject)
	q.free(e.object)
}

// gave says that an entry of the tail is owed no longer.
func (t *tail) gave(e *entry) {
	t.bytes -= size(e.delta)
	if !e.saved {
		return
	}
	if t.gone == nil {
		t.gone = map[uint64]bool{}
	}
	t.gone[e.id] = false
}

// letGo forgets an entry of the tail that is on disk as it is.
func (q *queue) letGo(e *entry) {
	q.leaveTail(e)
	q.tail.n++
	*e = entry{}
	keep(&q.freeEntries, e)
}

// promote moves the first of the tail's entries in memory, with nothing before it on disk, to the end of the head.
func (q *queue) promote(e *entry) {
	q.leaveTail(e)
	q.tail.after, q.tail.since = e.id, e.since
	e.object = q.slot(objectID(e.delta))
	e.object.object.push(e, byObject)
	e.stage = pending
	q.ages[pending].push(e, byAge)
}

// setDelta exchanges what an entry is about.
func (q *queue) setDelta(e *entry, d *event.Delta) {
	if e.stage == spilled {
		q.tail.bytes += size(d) - size(e.delta)
	}
	e.delta = d
}

// size is what a delta takes in memory. Of an update that is the new state: the old one is most often what the delta before it, which
// waits too, has as the new one. So it may be twice as much.
func size(d *event.Delta) int64 {
	n := deltaBytes + len(d.Object().JSON())
	if d.Event != nil {
		n += len(d.Event.Data)
	}
	return int64(n)
}

// spills reports whether a delta that comes now goes to the tail.
func (r *route) spills() bool {
	return r.q.tailed() || r.cfg.Disk > 0 && r.q.headLen() >= r.cfg.Capacity && r.diskRoom()
}

// full reports whether there is no room for a delta that comes now: overflow decides.
func (r *route) full() bool {
	return (r.q.headLen() >= r.cfg.Capacity || r.q.tailed()) && !r.diskRoom()
}

// diskRoom reports whether more may go to disk: within what the route may take, within what all may take, and not faster than the disk
// takes it.
func (r *route) diskRoom() bool {
	t, all := &r.q.tail, &r.parent.cfg
	return t.bytes < all.InFlight && t.onDisk+t.bytes < r.cfg.Disk && (all.MaxDisk == 0 || r.parent.onDisk.Load()+t.bytes < all.MaxDisk)
}

// spill owes d behind the head. unseen: the filter has not decided yet.
func (r *route) spill(d *event.Delta, unseen bool) {
	full := r.full()
	e := r.q.spill(d)
	e.unseen, e.unlimited = unseen, !unseen && r.limitsLater(d)
	if !unseen {
		r.count.matched.Inc()
		e.counted = true
	}
	if r.q.tail.bytes > r.parent.cfg.InFlight/2 && r.cfg.Disk > 0 {
		r.parent.cfg.Store.Soon()
	}
	if full && r.cfg.Overflow == Fold {
		r.q.setDelta(e, shrink(d))
	}
	folds := r.folds() || full && r.cfg.Overflow == Fold
	if folds && r.fold(e) {
		return
	}
	if full && r.cfg.Overflow == DropOldest {
		r.dropOldest()
	}
}

// saved forgets what is on disk, unless that takes more there than it may: then it folds further, and is written again.
func (r *route) saved(onDisk int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.level != nil {
		r.level.saved()
	}
	r.q.tail.onDisk = onDisk
	if !r.q.tail.reading {
		maps.DeleteFunc(r.q.tail.gone, func(_ uint64, handedOver bool) bool { return handedOver })
	}
	r.count.disk.Set(float64(onDisk))
	if all := &r.parent.cfg; onDisk <= r.cfg.Disk && (all.MaxDisk == 0 || r.parent.onDisk.Load() <= all.MaxDisk) {
		for e := r.q.ages[spilled].head; e != nil; {
			next := e.links[byAge].next
			if e.saved && !e.changed && checkpoint.Whole(e.delta) {
				r.q.letGo(e)
			}
			e = next
		}
	}
	r.changed()
}

// refill brings the tail into the head, as that has room, until ctx is done.
func (r *route) refill(ctx context.Context) {
	pause := time.NewTimer(forever)
	defer pause.Stop()
	for ctx.Err() == nil {
		if part, n, ok := r.nextPart(); ok {
			owed, err := r.parent.cfg.Store.ReadRoute(r.cfg.Name, part)
			if r.takeBack(part, n, owed, err) {
				continue
			}
			r.count.errors("read_back").Inc()
			if r.mayComplain("read back") {
				r.log.Error("what the route owes cannot be read back from the state file: it stands still, and it is tried again", slog.Any("error", err))
			}
			pause.Reset(readAgain)
		}
		select {
		case <-r.low:
		case <-pause.C:
		case <-ctx.Done():
		}
	}
}

// nextPart returns what is to be read next, and how many deltas are on disk alone. It takes what is in memory without reading.
func (r *route) nextPart() (part checkpoint.Part, n int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	q := &r.q
	for q.tail.n == 0 && q.ages[spilled].len > 0 && q.headLen() < r.cfg.Capacity {
		q.promote(q.ages[spilled].head)
		r.refilled()
	}
	if q.tail.n == 0 || q.headLen() >= r.cfg.Capacity {
		return part, 0, false
	}
	part = checkpoint.Part{After: q.tail.after, Limit: min(chunk, r.cfg.Capacity-q.headLen())}
	if first := q.ages[spilled].head; first != nil {
		part.Before = first.id
	}
	q.tail.reading = true
	return part, q.tail.n, true
}

// takeBack puts at the end of the head what was read, when n deltas were on disk alone. It returns false if there was an error.
func (r *route) takeBack(part checkpoint.Part, n int, owed []checkpoint.Owed, err error) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	q := &r.q
	q.tail.reading = false
	if err != nil {
		return false
	}
	for _, o := range owed {
		q.tail.after = o.ID
		if _, gone := q.tail.gone[o.ID]; gone {
			n++
			continue
		}
		q.tail.n--
		q.tail.since = o.Delta.Seen
		r.readmit(o)
	}
	if len(owed) < part.Limit { // there is no more before the next one in memory
		if next := q.ages[spilled].head; part.Before > 0 {
			q.tail.after = part.Before - 1
			if next != nil && next.id == part.Before {
				q.promote(next)
			}
		} else if n > len(owed) {
			q.tail.n -= n - len(owed)
			r.log.Error("the state file has less than the route owes: deltas are lost", slog.Int("lost", n-len(owed)))
		}
	}
	r.refilled()
	return true
}

// refilled lets the route's leader give what came from the tail its lane.
func (r *route) refilled() {
	r.settled = false
	r.changed()
	r.signal()
}

// Saved says that everything that [Pipeline.Dirty] has handed over is on disk. debt returns how many bytes a route takes there, and how
// many all of them.
func (p *Pipeline) Saved(debt func(route string) (bytes, all int64)) {
	p.mu.Lock()
	for _, r := range p.now.Load().routes {
		bytes, all := debt(r.cfg.Name)
		p.onDisk.Store(all)
		r.saved(bytes)
	}
	saved := p.saving
	p.saving = nil
	p.mu.Unlock()
	p.forgetPassedOn(saved)
}
