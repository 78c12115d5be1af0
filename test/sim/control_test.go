package sim_test

import (
	"context"
	"time"

	"github.com/deltarouter/deltarouter/internal/api"
)

// patience bounds the wait for an answer of the API.
const patience = time.Minute

// ask calls f with the API of the running router, if any.
func (w *world) ask(f func(ctx context.Context, c *api.ControlConfig)) {
	if w.l == nil || w.l.control.Load() == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	f(ctx, w.l.control.Load())
}

// resync repeats all objects to a route, or relists all sources.
func (w *world) resync(a, b int) {
	w.ask(func(ctx context.Context, c *api.ControlConfig) {
		ask := api.Resync{Relist: true}
		if r := w.routes[b%len(w.routes)]; a%3 > 0 && !r.removed {
			ask = api.Resync{Route: r.intake()}
		}
		_, err := c.Resync(ctx, ask)
		w.say("resync %+v: %v", ask, err)
	})
}

// relist relists all sources, and reports whether that succeeded.
func (w *world) relist() (done bool) {
	w.ask(func(ctx context.Context, c *api.ControlConfig) {
		found, err := c.Resync(ctx, api.Resync{Relist: true})
		w.say("relist: %+v %v", found, err)
		done = err == nil
		for _, s := range found.Sources {
			done = done && s.Error == ""
		}
	})
	w.rest()
	return done
}

// retry makes some dead letters and then retries all.
func (w *world) retry(a, b int) {
	if w.l != nil && b%2 == 0 {
		w.r.set([]string{"a", "b", "h"}[a%3], poisoned)
		for i := range 3 { // one of these is refused
			w.c.happen(nameOf(a+i), recreate, i%2 == 0)
		}
		w.pass(time.Second)
		w.r.healAll()
	}
	w.ask(func(ctx context.Context, c *api.ControlConfig) {
		letters, err := c.DeadLetters.Letters(ctx, "", 0, 1000)
		var which api.Selection
		for _, l := range letters {
			which.IDs = append(which.IDs, l.ID)
		}
		if err == nil && len(letters) > 0 {
			_, err = c.DeadLetters.Retry(ctx, which, false)
		}
		w.say("retry %d: %v", len(letters), err)
	})
}

// look is an observation of a route, or of all routes.
type look struct {
	at         time.Time
	owed, took int
}

// look returns the deltas that all routes owe and the deliveries so far, without a time. Both
// matter: a route that writes deltas to the dead letters delivers none and is still at work.
func (w *world) look() look {
	now := look{took: w.r.took()}
	w.ask(func(ctx context.Context, c *api.ControlConfig) {
		for _, r := range c.Status(ctx).Routes {
			now.owed += r.Pending
		}
	})
	return now
}

// checkBounds checks the bound of each route's deltas in memory.
func (w *world) checkBounds() {
	if w.l == nil || w.l.control.Load() == nil || w.l.reloaded {
		return
	}
	for _, s := range w.l.control.Load().Status(context.Background()).Routes {
		for _, r := range w.routes {
			if r.name() != s.Name {
				continue
			}
			now, before := look{time.Now(), s.Pending, w.r.took()}, w.l.looks[r]
			same := before.owed == now.owed && before.took == now.took
			if most := r.mostInMemory(w, same && w.l.heardAfter(before.at)); most >= 0 && s.Pending-s.OnDisk > most {
				w.fail("route %s has %d deltas in memory, %d of %d owed are on disk", s.Name, s.Pending-s.OnDisk, s.OnDisk, s.Pending)
			}
			if !same {
				w.l.looks[r] = now
			}
		}
	}
}

// mostInMemory returns the bound of a route's deltas in memory; -1: unknown. saved: the last cut
// that the router knows contains everything.
func (r *route) mostInMemory(w *world, saved bool) int {
	there := 0
	if r.existing || w.lives > 1 {
		// A new route gets existing objects without waiting for room; while it is not ready they
		// exceed the bound.
		there = names
	}
	switch {
	case r.handler == "emit":
		return -1
	case r.disk == "1Gi" && !r.nets() && saved: // the rest is on disk only
		return r.memory + there
	case r.disk == "0" && r.overflow == "block" && w.lives == 1:
		return r.memory + there
	}
	return -1
}
