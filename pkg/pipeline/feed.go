package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/filters"
)

// ErrFed is returned where deltas of a source are put through a route that takes none, because other routes feed it.
var ErrFed = errors.New("other routes feed it, and it takes nothing of a source by itself: name one of these")

const (
	// feedWait is how long a worker waits for room in a route that its own feeds.
	feedWait = time.Second
	// feedAgain is how long such a route is left alone after that.
	feedAgain = time.Second
)

// feeding is what an entry comes to at the route that it is fed to.
type feeding struct {
	target   *route // that was asked; nil: none was
	wanted   []fed
	filtered int
}

// fed is an event as the delta of another route, and what that route said of it.
type fed struct {
	delta   *event.Delta
	verdict verdict
}

// handing is what came of an attempt to feed.
type handing uint8

const (
	handed    handing = iota
	noRoom            // room is closed when there is
	exchanged         // another route has the name by now: it is to be asked
	bereft            // what this route owes is another's by now, or nobody's
)

// feedWave gives the wave to the route that a sink stands for.
func (w *worker) feedWave(ctx context.Context, sink int) {
	patient := true
	for _, e := range w.wave {
		if e.work.closed&(1<<sink) != 0 {
			continue
		}
		if err := w.hopeless(e, sink); err != nil {
			w.failures = append(w.failures, failure{e, sink, err})
			continue
		}
		refusal := w.feed(ctx, sink, e, patient)
		switch {
		case refusal == nil:
			w.count.events[sink].delivered.Add(float64(len(e.work.events)))
			if given := w.parent.cfg.Given; given != nil {
				given(w.cfg.Name, w.cfg.Sinks[sink], e.work.events)
			}
		case w.expired(ctx, e, refusal):
			w.failures = append(w.failures, failure{e, sink, refusal})
		default:
			patient = false
			w.postpone(ctx, e, sink, remaining{}, refusal)
		}
	}
	w.refuse(ctx, sink)
}

// hopeless returns why an entry is not to be fed at all: it is too old, or was when its dead letter could not be written.
func (w *worker) hopeless(e *entry, sink int) error {
	if e.work.left != nil && e.work.left[sink].rejected != nil {
		return e.work.left[sink].rejected
	}
	return w.tooOld(e)
}

// feed gives all events of an entry to a route, or none. While that has no room it waits a little, if it is patient and nobody has waited
// in vain before. The error says that the events were not given, and until when to leave the route alone.
func (w *worker) feed(ctx context.Context, sink int, e *entry, patient bool) error {
	var f feeding
	var patience *time.Timer
	for {
		target := w.parent.now.Load().fed[w.cfg.Sinks[sink].Feeds]
		if target == nil {
			return w.holdBack(ctx, sink, e, "is not there, or nothing feeds it any more")
		}
		if target != f.target {
			f = target.consider(ctx, e)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		result, room := w.handOver(sink, e, &f)
		switch {
		case result == handed:
			return nil
		case result == exchanged:
			continue
		case result == bereft, !patient, room == nil:
			return w.holdBack(ctx, sink, e, "has no room")
		case patience == nil:
			patience = time.NewTimer(feedWait)
			defer patience.Stop()
		}
		if !w.await(ctx, room, patience.C) {
			target.stall()
			return w.holdBack(ctx, sink, e, "has no room")
		}
	}
}

// consider asks filter and keys about the events of an entry. No lock is held.
func (r *route) consider(ctx context.Context, e *entry) feeding {
	f := feeding{target: r}
	for i := range e.work.events {
		d := event.Feed(e.delta, &e.work.events[i])
		if !slices.Contains(r.cfg.Ops, d.Op) {
			continue
		}
		m := filters.Match{Verdict: filters.Unready}
		if r.ready() {
			m = r.table.Evaluate(ctx, 0, d)
		}
		if m.Verdict == filters.Filtered {
			f.filtered++
			continue
		}
		f.wanted = append(f.wanted, fed{d, r.verdict(ctx, d, m)})
	}
	return f
}

// handOver owes the events to the route that was asked, and closes the entry for the sink: in one step for whoever looks at all routes.
// Where there is no room it returns what is closed when there is, unless that was waited for in vain.
func (w *worker) handOver(sink int, e *entry, f *feeding) (_ handing, room <-chan struct{}) {
	p := w.parent
	p.feeds.RLock()
	defer p.feeds.RUnlock()
	switch {
	case p.now.Load().fed[w.cfg.Sinks[sink].Feeds] != f.target:
		return exchanged, nil
	case w.bereft:
		return bereft, nil
	}
	if ok, room := f.target.takeFed(f); !ok {
		return noRoom, room
	}
	e.work.closed |= 1 << sink
	e.work.fed = true
	if w.group != nil {
		w.share()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.heldBack[sink] = time.Time{}
	for _, m := range w.members(e) {
		w.tell(m)
	}
	p.handed.Add(1)
	return handed, nil
}

// takeFed owes what is fed if there is room for one more, or else returns what is closed when there is; nil: somebody waited in vain.
func (r *route) takeFed(f *feeding) (ok bool, room <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(f.wanted) > 0 && r.cfg.Overflow != DropOldest && r.full() {
		if r.stalled {
			return false, nil
		}
		if r.room == nil {
			r.room = make(chan struct{})
		}
		return false, r.room
	}
	r.count.filtered.Add(float64(f.filtered))
	for i := range f.wanted {
		r.append(f.wanted[i].delta, &f.wanted[i].verdict)
	}
	r.changed()
	return true, nil
}

// await waits for room, as long as the route of the worker stays.
func (w *worker) await(ctx context.Context, room <-chan struct{}, patience <-chan time.Time) bool {
	select {
	case <-room:
		return true
	case <-ctx.Done():
	case <-w.leaving:
	case <-patience:
	}
	return false
}

// stall notes that somebody waited in vain: nobody waits again before there is room.
func (r *route) stall() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stalled = r.full()
}

// holdBack returns the error of an entry that cannot be fed now, and leaves the route alone that it is for.
func (w *worker) holdBack(ctx context.Context, sink int, e *entry, why string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s := w.cfg.Sinks[sink]
	err := &refusedError{s.Name, w.now().Add(feedAgain), fmt.Sprintf("route %q %s", s.Feeds, why)}
	w.mu.Lock()
	w.heldBack[sink] = err.until
	w.mu.Unlock()
	w.count.errors("held_back").Inc()
	w.complain("the route that they are for takes nothing more", e.delta, s.Name, err)
	return err
}

// anywhere reports whether something is true of a route, as if all were looked at in one moment: what one gives to another is seen in one
// of the two.
func (p *Pipeline) anywhere(what func(*route) bool) bool {
	for {
		before := p.handed.Load()
		if slices.ContainsFunc(p.now.Load().routes, what) {
			return true
		}
		if p.handed.Load() == before {
			return false
		}
	}
}

// readyThrough reports whether the route is ready, and all that it feeds.
func (r *route) readyThrough() bool {
	if !r.ready() {
		return false
	}
	now := r.parent.now.Load()
	for _, s := range r.cfg.Sinks {
		if fed := now.fed[s.Feeds]; fed != nil && fed != r && !fed.readyThrough() {
			return false
		}
	}
	return true
}

// heldBy returns the name of a route that this one feeds, and that has no room; empty: there is none. It is called under the lock.
func (r *route) heldBy() string {
	for i, until := range r.heldBack {
		if !until.IsZero() && r.q.owed() > 0 {
			return r.cfg.Sinks[i].Feeds
		}
	}
	return ""
}

// owing is a dead letter that is put through again, and that the route is done with: another route has what came of it.
type owing struct {
	route  *route
	letter uint64
}

// keepLetters keeps dead letters until the disk has what came of them.
func (w *worker) keepLetters() {
	if len(w.passedOn) == 0 {
		return
	}
	w.parent.mu.Lock()
	defer w.parent.mu.Unlock()
	for _, letter := range w.passedOn {
		w.parent.passedOn = append(w.parent.passedOn, owing{w.route, letter})
	}
	w.passedOn = w.passedOn[:0]
}

// forgetPassedOn removes dead letters that the disk does not need any more.
func (p *Pipeline) forgetPassedOn(all []owing) {
	byRoute := make(map[*route][]uint64)
	for _, o := range all {
		byRoute[o.route] = append(byRoute[o.route], o.letter)
	}
	for r, letters := range byRoute {
		r.forget(timeContext{}, letters)
	}
}

// checkFeeds returns an error if a route feeds one that is not there or that is not for it, or if routes feed each other in a circle.
func checkFeeds(routes []Route) error {
	byName := make(map[string]*Route, len(routes))
	for i := range routes {
		byName[routes[i].Name] = &routes[i]
	}
	for i := range routes {
		r := &routes[i]
		if r.Fed && (r.When.Filter != nil || r.Gone > 0) {
			return fmt.Errorf("route %q is fed by other routes and has a condition (when, for): give that to the routes that feed it", r.Name)
		}
		for _, s := range r.Sinks {
			if s.Feeds == "" {
				continue
			}
			if fed := byName[s.Feeds]; fed == nil || !fed.Fed {
				return fmt.Errorf("route %q feeds route %q, which is not there or gets its deltas from sources: name another one", r.Name, s.Feeds)
			}
		}
		if chain := r.circle(byName, nil, map[string]bool{}); chain != nil {
			return fmt.Errorf("route %q feeds itself (%s): take one of these out of the sinks", r.Name, strings.Join(chain, " → "))
		}
	}
	return nil
}

// circle returns the names of a way from the first of the way back to it, of which way is the beginning; nil: there is none. What was
// passed leads nowhere, or is on the way.
func (r *Route) circle(byName map[string]*Route, way []string, passed map[string]bool) []string {
	way = append(way[:len(way):len(way)], r.Name)
	if len(way) > 1 && r.Name == way[0] {
		return way
	}
	if passed[r.Name] {
		return nil // a circle without the first is found from one of its own
	}
	passed[r.Name] = true
	for _, s := range r.Sinks {
		if fed := byName[s.Feeds]; s.Feeds != "" && fed != nil {
			if found := fed.circle(byName, way, passed); found != nil {
				return found
			}
		}
	}
	return nil
}
