package apply

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/deltarouter/deltarouter/internal/backoff"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/informer/internal/persist"
	"github.com/deltarouter/deltarouter/pkg/informer/internal/reflector"
)

const (
	// maxHeld is the number of events that are held back at most. At more the watch waits.
	maxHeld = 4096
	// maxGets is the number of objects that are asked about at once, each by a request of its own.
	maxGets = 4
)

// hold is an object that left the watch, while it is not known whether it was deleted or only
// deselected. The store keeps the object, and later events of its key wait.
type hold struct {
	change change
	mark   *persist.Mark
	// later are the events of the key since then, in order. They are called with the turn.
	later []func(ctx context.Context)

	asking bool // a request about the object is under way
	next   time.Time
	pause  backoff.Series
	err    error // of the last request
}

// held has the holds of a watch. The turn is held where a hold begins, gets a later event, or ends;
// mu is taken after it.
type held struct {
	a       *Applier
	mu      sync.Mutex
	holds   map[event.Key]*hold
	events  int           // the holds and their later events
	changed chan struct{} // closed at the next end of a hold; nil: nobody waits
	wake    chan struct{} // there may be something to ask
	then    []func()      // called once nothing is held

	gets    int // requests for one object that are under way
	listing bool
	relist  time.Time // no list before
	pause   backoff.Series
}

func newHeld(a *Applier, pause backoff.Policy) *held {
	return &held{a: a, holds: make(map[event.Key]*hold), wake: make(chan struct{}, 1), pause: backoff.Series{Policy: pause}}
}

// count counts events that are held back, or with n below 0 no more. mu is held.
func (h *held) count(n int) {
	h.events += n
	h.a.cfg.Health.HoldBack(n)
}

// later holds back an event if its key is held.
func (h *held) later(key event.Key, process func(ctx context.Context)) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	of := h.holds[key]
	if of == nil {
		return false
	}
	of.later = append(of.later, process)
	h.count(1)
	return true
}

// hold holds back that an object left the watch. The turn is held, and the key is not held.
func (h *held) hold(c change) {
	position := h.a.cfg.State.Position
	c.listed = position.Relisting()
	applied := c.applied
	if c.before == nil {
		applied = "" // the event of an intent without an object, see Position.Repeats
	}
	if position.Replays(applied) {
		h.a.again[c.old.Key()] = true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.holds[c.old.Key()] = &hold{change: c, mark: position.Hold(applied), pause: backoff.Series{Policy: h.pause.Policy}}
	h.count(1)
	h.signal()
}

func (h *held) signal() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// await waits until at most so many events are held back. It returns false if ctx is done first.
func (h *held) await(ctx context.Context, most int) bool {
	for {
		h.mu.Lock()
		if h.events <= most {
			h.mu.Unlock()
			return ctx.Err() == nil
		}
		if h.changed == nil {
			h.changed = make(chan struct{})
		}
		changed := h.changed
		h.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// RunAsking calls run, and meanwhile asks the API server about the objects that left the watch.
func RunAsking(ctx context.Context, a *Applier, run func(context.Context)) {
	asking, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() { a.held.ask(asking) })
	run(ctx)
	cancel()
	done.Wait()
}

// ask asks about the held objects until ctx is done.
func (h *held) ask(ctx context.Context) {
	var requests sync.WaitGroup
	defer requests.Wait()
	for ctx.Err() == nil {
		list, gets, wait := h.plan(time.Now())
		if list != nil {
			requests.Go(func() { h.askList(ctx, list) })
		}
		for _, of := range gets {
			requests.Go(func() { h.askOne(ctx, of) })
		}
		t := time.NewTimer(wait)
		select {
		case <-h.wake:
		case <-t.C:
		case <-ctx.Done():
		}
		t.Stop()
	}
}

// plan returns what to ask now: about many objects by one list, about few by a request for each.
// wait is the time until there is more to ask.
func (h *held) plan(now time.Time) (list, gets []*hold, wait time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	wait = time.Hour
	if h.listing { // its answer comes first
		return nil, nil, wait
	}
	var due []*hold
	for _, of := range h.holds {
		if of.asking {
			continue
		}
		if rest := of.next.Sub(now); rest > 0 {
			wait = min(wait, rest)
			continue
		}
		due = append(due, of)
	}
	// A list that failed is not tried again at once; single requests go on meanwhile.
	if len(due) >= reflector.ManyMissing && !now.Before(h.relist) {
		h.listing = true
		list = due
	} else {
		gets = due[:min(len(due), maxGets-h.gets)]
		h.gets += len(gets)
	}
	for _, of := range slices.Concat(list, gets) {
		of.asking = true
	}
	return list, gets, wait
}

func (h *held) askOne(ctx context.Context, of *hold) {
	there, err := h.a.cfg.Inquiry.Exists(ctx, of.change.old)
	h.asked(func() {
		h.gets--
		if of.err = err; err != nil {
			of.asking = false
			of.next = time.Now().Add(max(of.pause.Next(), reflector.RetryAfter(err)))
		}
	})
	if err == nil {
		h.answer(ctx, of, there)
	}
	h.tell(ctx)
}

func (h *held) askList(ctx context.Context, all []*hold) {
	objects := make([]*event.Object, len(all))
	for i, of := range all {
		objects[i] = of.change.old
	}
	there, err := h.a.cfg.Inquiry.Present(ctx, objects)
	h.asked(func() {
		h.listing = false
		if err == nil {
			h.pause.Reset()
			return
		}
		h.relist = time.Now().Add(max(h.pause.Next(), reflector.RetryAfter(err)))
		for _, of := range all {
			of.asking, of.err = false, err
		}
	})
	for i, of := range all {
		if err != nil || !h.answer(ctx, of, there[persist.Incarnation{Key: objects[i].Key(), UID: objects[i].UID()}]) {
			break
		}
	}
	h.tell(ctx)
}

// asked records the result of a request.
func (h *held) asked(record func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	record()
	h.signal()
}

// tell records for the status which objects are held because the API server does not answer.
func (h *held) tell(ctx context.Context) {
	if ctx.Err() != nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	var first *hold
	waiting := 0
	for _, of := range h.holds {
		if of.err == nil {
			continue
		}
		waiting++
		if first == nil || of.change.old.Key().String() < first.change.old.Key().String() {
			first = of
		}
	}
	if first == nil {
		h.a.cfg.Health.Decided()
		return
	}
	h.a.cfg.Health.Undecided(first.change.old.Key(), waiting, first.err)
}

// answer ends a hold, and applies the later events of its key; among these the object may leave
// again. It returns false if ctx is done. The saved position stays until all of them are applied.
func (h *held) answer(ctx context.Context, of *hold, there bool) bool {
	if !h.a.turn.take(ctx) {
		return false
	}
	defer h.a.turn.give()
	c, key := of.change, of.change.old.Key()
	if there {
		c.op = event.Deselected
	}
	if c.before != nil { // the store may have it with other fields by now
		c.before = h.a.cfg.State.Get(key)
	}
	position := h.a.cfg.State.Position
	was := position.Begin(of.mark, h.has(of))
	if !h.a.apply(ctx, c) {
		position.Resume(of.mark, was)
		return false
	}
	// The first of the later events in which the object leaves again holds back the rest of them.
	later := h.end(key)
	var again *hold
	for i, process := range later {
		process(ctx)
		if ctx.Err() != nil {
			return false
		}
		if again = h.get(key); again != nil {
			h.wait(again, later[i+1:])
			break
		}
	}
	// The new hold keeps the place of the old one, because nothing behind it may count as saved.
	if again != nil {
		of.mark, again.mark = again.mark, of.mark
		position.Resume(again.mark, was)
	}
	position.Release(of.mark)
	h.ended()
	return true
}

// end removes the hold of a key, and returns its later events, which still count as held back.
func (h *held) end(key event.Key) (later []func(context.Context)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	later = h.holds[key].later
	delete(h.holds, key)
	h.count(-1 - len(later))
	return later
}

// has reports whether later events wait behind a hold.
func (h *held) has(of *hold) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(of.later) > 0
}

func (h *held) get(key event.Key) *hold {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.holds[key]
}

// wait makes events wait behind a hold.
func (h *held) wait(of *hold, later []func(context.Context)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	of.later = append(of.later, later...)
	h.count(len(later))
}

// ended wakes those who wait for the end of a hold.
func (h *held) ended() {
	h.mu.Lock()
	if h.changed != nil {
		close(h.changed)
		h.changed = nil
	}
	var then []func()
	if h.events == 0 {
		then, h.then = h.then, nil
	}
	h.mu.Unlock()
	for _, f := range then {
		f()
	}
}

// afterwards calls f once nothing is held.
func (h *held) afterwards(f func()) {
	h.mu.Lock()
	h.then = append(h.then, f)
	h.mu.Unlock()
	h.ended()
}
