package sim_test

import (
	"fmt"
	"syscall"
	"time"

	"github.com/deltarouter/deltarouter/internal/pipeline"
)

// alter changes the configuration: it changes the settings or the name of a route, removes it, or
// adds one. It returns the changed route, or nil.
func (w *world) alter(what, which int) *route {
	r := w.routes[which%len(w.routes)]
	switch {
	case what%5 == 0 && !r.removed:
		r.concurrency = 1 + r.concurrency%3
	case what%5 == 1 && !r.removed:
		r.names = append(r.names, fmt.Sprintf("%s%d", r.names[0], len(r.names)))
	case what%5 == 2 && !r.removed && r != w.routes[0]: // one route always stays
		r.removed = true
	case what%5 == 3 && r.removed:
		// The returned route keeps its backlog. It does not get existing objects or the changes in
		// between.
		r.removed, r.returned, r.existing, r.since, r.born, r.bornInReload = false, true, false, unknown, w.lives, true
	case what%5 == 4 && len(w.routes) < 6:
		added := *w.routes[0]
		added.names, added.removed, added.since = []string{fmt.Sprintf("new%d", len(w.routes))}, false, unknown
		added.born, added.bornInReload, added.existing = w.lives, true, which%2 == 0
		w.routes = append(w.routes, &added)
		return &added
	default:
		return nil
	}
	return r
}

// edit changes the configuration while the router is down.
func (w *world) edit(what, which int) {
	if w.l == nil {
		w.alter(what, which)
	}
}

// reload changes a route while the router runs, and waits until the reload is complete.
func (w *world) reload(what, which int) {
	if w.l == nil {
		return
	}
	if w.disk.troubled() {
		w.disk.set(0, 0, false) // the state of a returned route must be read
		w.pass(2 * time.Second)
	}
	if w.l == nil {
		return
	}
	r := w.alter(what, which)
	if r == nil {
		return
	}
	before := w.l.log.reloads()
	w.signal()
	switch {
	case w.l != nil && w.l.log.reloads() == before:
	case w.l != nil && r.bornInReload && r.since == unknown && w.listed >= 0:
		if r.since = w.c.now(); r.existing {
			r.since = -1
		}
	case r.since == unknown:
		r.existing = false // it may have got the existing objects already
	}
}

// reloadBound is the time after which a reload counts as stuck. A reload waits for a blocked batch
// as long as the product allows, which is no failure, so the bound is twice that.
const reloadBound = 2 * pipeline.FinishBound

// signal reloads the configuration, and waits until the reload is complete.
func (w *world) signal() {
	w.write()
	w.l.reloaded = true
	before := w.l.log.reloads()
	select {
	case w.l.reload <- syscall.SIGHUP:
	case <-w.l.ended:
	case <-time.After(time.Minute): // it ended; rest reports the reason
	}
	for began := time.Now(); time.Since(began) < reloadBound; {
		if w.pass(500 * time.Millisecond); w.l == nil || w.l.log.reloads() > before {
			break
		}
	}
	if w.l != nil && w.l.log.reloads() == before {
		w.fail("life %d has not reloaded after %v", w.lives, reloadBound)
	}
}

// siege makes a route fall behind while its backlog is saved.
func (w *world) siege(a, b int) {
	t := []trouble{blocked, refusing, slow}[a%3]
	w.r.set("a", t)
	w.r.set([]string{"b", "h"}[a%2], t)
	w.drift(a, b)
	if b%4 == 0 {
		w.crash()
	}
}

// storm makes a full disk fall behind.
func (w *world) storm(a, b int) {
	if a%2 == 0 { // dead letters cannot be written either
		w.r.set([]string{"a", "b", "h"}[b%3], poisoned)
	}
	w.disk.set(0, 0, true)
	w.drift(a, b)
	w.disk.set(0, 0, false)
	w.pass(pause(a + b))
	if b%4 != 0 {
		w.crash()
	}
}

// edge makes a change at the time of a cut or just before it, and usually ends the process then.
func (w *world) edge(a, b int) {
	if w.l == nil {
		return
	}
	if w.pass(1200 * time.Millisecond); w.l == nil {
		return
	}
	next := w.l.lastCut().Add(time.Second)
	left := time.Until(next)
	if left <= time.Millisecond { // the disk is full or slow
		return
	}
	if w.pass(left - time.Millisecond); w.l == nil {
		return
	}
	if a%4 > 0 {
		w.l.arm(1, a%4 > 1)
	}
	time.Sleep(time.Until(next) - time.Duration(b%2)*500*time.Microsecond)
	w.c.happen(nameOf(a), change(b%int(changes)), b%3 > 0)
	w.pass(5 * time.Millisecond)
}

// drift makes changes with cuts in between.
func (w *world) drift(a, b int) {
	for i := range 2 + b%4 {
		what := update
		if i%2 == 1 {
			what = change((a + b*i) % int(changes))
		}
		w.c.happen(nameOf(a), what, a%3 > 0)
		w.pass([]time.Duration{1100 * time.Millisecond, 20 * time.Millisecond, 2500 * time.Millisecond}[(a+i)%3])
	}
}
