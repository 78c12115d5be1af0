package pipeline

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/deltarouter/deltarouter/pkg/checkpoint"
)

// heir is what a route waits for that owes first what is on disk under another name. All that comes meanwhile goes to its tail.
type heir struct {
	was   string          // that name; empty: there is nothing to wait for
	first checkpoint.Debt // what is owed under it, unless it is a route that is at work
	own   checkpoint.Debt // what is owed under its own name, unless that is at work
	upTo  uint64          // see Store.Rename
}

// Inherit makes a route of the change owe first what was owed by a route that an earlier change has removed: was is its name, and
// before what is owed under it. own is what is owed on disk by a route of [Change.New]; a route that is there already owes before first, and
// then what it owes now. It is called before Swap, for a route that is made anew, see [Route].Renew; Finish brings it about.
func (c *Change) Inherit(name, was string, before, own checkpoint.Debt) error {
	i := slices.IndexFunc(c.pairs, func(p pair) bool { return p.route.cfg.Name == name })
	if i < 0 || c.pipeline.cfg.Store == nil {
		return fmt.Errorf("route %q: what %q owed cannot be inherited: there is no such route, it stays as it is, or nothing is on disk", name, was)
	}
	c.pairs[i].route.heir = heir{was: was, first: before, own: own}
	return nil
}

// Inherit makes a route owe first what is on disk under another name, was, and could not be put under its own: before says how much that
// is, and own what is on disk under its own name. It is called instead of [Pipeline.Restore], before Start and before the first Admit. The
// route stands still until the rename has succeeded, which is tried from Start on; what comes meanwhile waits behind it.
//
// The error says that there is no such route, or that it is too late.
func (p *Pipeline) Inherit(name, was string, before, own checkpoint.Debt) error {
	p.lifecycle.Lock()
	defer p.lifecycle.Unlock()
	routes := p.now.Load().routes
	i := slices.IndexFunc(routes, func(r *route) bool { return r.cfg.Name == name })
	if i < 0 || p.cancel != nil || p.cfg.Store == nil {
		return fmt.Errorf("route %q: what %q owed cannot be inherited: there is no such route, nothing is on disk, or the pipeline has started", name, was)
	}
	routes[i].heir = heir{was: was, first: before, own: own}
	routes[i].follow(nil)
	return nil
}

// waits reports whether the route stands still until what it inherits is under its name.
func (r *route) waits() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.q.tail.held
}

// follow makes the numbers of r, which has owed nothing yet, begin behind those of what it is to owe first.
func (r *route) follow(from *route) {
	last := uint64(0)
	if from != nil {
		last = r.inheritRules(from)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	h := &r.heir
	if h.was == "" {
		if from != nil {
			r.q.changes.last = last
		}
		return
	}
	counted := h.first.Last
	switch {
	case from == nil:
		h.upTo = h.own.Last
	case from.cfg.Name == h.was: // what was saved under the new name before is forgotten
		r.reset, counted = true, last
	default:
		h.upTo = last
	}
	behind := max(last, h.upTo+max(h.upTo, h.first.Last))
	if from == nil {
		counted = behind
	}
	r.q.changes.last = behind
	r.q.tail = tail{held: true, before: behind, counted: counted}
}

// inheritRules makes r go on with what the rules of the route know that it takes over from, all in one step: time makes something of them at any
// moment. It returns the number that from has given last.
func (r *route) inheritRules(from *route) (last uint64) {
	from.mu.Lock()
	defer from.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inheritLimit(from)
	r.inheritAbsent(from)
	r.inheritLevel(from)
	return from.q.changes.last
}

// inherit puts on disk what is owed first under the name of the route, which then starts to work. It tries until it is done. If ctx is
// done before, all stays where it is, and the next start of the router does it.
func (p *Pipeline) inherit(ctx context.Context, from, to *route) {
	if from != nil {
		p.feeds.Lock()
		from.bereft = true
		p.feeds.Unlock()
		from.freeze()
	}
	if !p.rename(ctx, to) {
		return
	}
	n, since := to.heir.first.N+to.heir.own.N, time.Time{}
	p.mu.Lock()
	if from != nil {
		s := from.status()
		n, since = n+from.saves(), s.Oldest
		p.leaving = slices.DeleteFunc(p.leaving, func(r *route) bool { return r == from })
		if from.cfg.Name != to.cfg.Name {
			p.forgetMetrics(from)
		}
	}
	to.resume(n, since)
	p.mu.Unlock()
	p.lifecycle.Lock()
	defer p.lifecycle.Unlock()
	p.run(to) //nolint:contextcheck // it runs as long as Start says
}

func (p *Pipeline) rename(ctx context.Context, to *route) bool {
	pause := time.NewTimer(forever)
	defer pause.Stop()
	for {
		err := p.cfg.Store.Rename(ctx, to.heir.was, to.cfg.Name, to.heir.upTo)
		if err == nil {
			return true
		}
		if to.mayComplain("rename") {
			to.log.Error("what the route owes cannot be put under its new name: it stands still, and it is tried again",
				slog.String("was", to.heir.was), slog.Any("error", err))
		}
		pause.Reset(readAgain)
		select {
		case <-pause.C:
		case <-ctx.Done():
			return false
		}
	}
}

// freeze makes what the route owes stay as it is: a worker that was given up may still come back.
func (r *route) freeze() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.frozen = true
}

// saves returns how much of what the route owes is on disk once all is written: all but dead letters that are delivered again.
func (r *route) saves() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.q.owed()
	for i := range r.q.ages {
		for e := r.q.ages[i].head; e != nil; e = e.links[byAge].next {
			if e.letter != 0 {
				n--
			}
		}
	}
	return n
}

// resume makes the route owe the first n deltas that are on disk under its name.
func (r *route) resume(n int, since time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := &r.q.tail
	t.held, t.after, t.since = false, 0, since
	t.n += n
	r.changed()
}
