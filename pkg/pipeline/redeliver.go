package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/deltarouter/deltarouter/pkg/checkpoint"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// Redeliver puts the delta of a dead letter through its route again, flagged as redelivered: behind what is owed for its key, without
// asking the filter, unless it was the filter or the key that failed. Only the sink that refused it gets it, if the letter names one.
// The attempts, and the time that an unavailable sink has, begin anew.
//
// The letter is removed from Config.DeadLetters once the route is done with the delta; if it is put aside again, there is a new letter
// by then. Until that happens the letter is all that a crash leaves: what is redelivered is not handed over by [Pipeline.Dirty].
//
// The error says why it cannot be put through now, and what to do about it.
func (p *Pipeline) Redeliver(ctx context.Context, letter checkpoint.Letter) error {
	select {
	case <-p.stopping:
		return ErrStopped
	default:
	}
	routes := p.now.Load().routes
	i := slices.IndexFunc(routes, func(r *route) bool { return r.cfg.Name == letter.Route })
	if i < 0 {
		return fmt.Errorf("there is no route %q any more: configure it again, or drop the letter", letter.Route)
	}
	return routes[i].redeliver(ctx, letter)
}

func (r *route) redeliver(ctx context.Context, letter checkpoint.Letter) error {
	closed, err := r.allBut(letter.Sink)
	if err != nil {
		return err
	}
	d := *letter.Delta
	d.Redelivered, d.Durable = true, nil
	if err := r.reserve(letter.ID); err != nil {
		return err
	}
	v, filtered := r.evaluate(ctx, &d, letter.Unseen)
	if err := ctx.Err(); err != nil {
		r.release(letter.ID)
		return err
	}
	if filtered {
		r.count.filtered.Inc()
		r.forget(ctx, []uint64{letter.ID})
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.q.redeliver(&d, v, closed, letter.ID, r.now())
	r.count.matched.Inc()
	r.changed()
	return nil
}

// allBut returns the sinks, a bit each, that do not get what the named one refused.
func (r *route) allBut(sink string) (closed uint64, err error) {
	if sink == "" {
		return 0, nil
	}
	found := false
	for i, s := range r.cfg.Sinks {
		if s.Name == sink {
			found = true
			continue
		}
		closed |= 1 << i
	}
	if !found {
		return 0, fmt.Errorf("route %q does not deliver to sink %q any more: drop the letter", r.cfg.Name, sink)
	}
	return closed, nil
}

// reserve makes sure that the route can take the letter, and that it is not put through twice at a time.
func (r *route) reserve(letter uint64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.redelivering[letter]:
		return errors.New("it is being delivered again already: wait for what comes of it")
	case r.paused != "":
		return fmt.Errorf("route %q is paused: mend the cause and start the router anew", r.cfg.Name)
	case !r.settled:
		return fmt.Errorf("route %q is not ready yet: try again when its sources have synced, see /readyz", r.cfg.Name)
	case r.q.tailed() || r.q.owed() >= r.cfg.Capacity:
		return fmt.Errorf("route %q owes as much as its queue holds (queue.memory): try again when it has delivered", r.cfg.Name)
	}
	r.redelivering[letter] = true
	return nil
}

func (r *route) release(letters ...uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, letter := range letters {
		delete(r.redelivering, letter)
	}
}

// forget removes letters that are done with.
func (r *route) forget(ctx context.Context, letters []uint64) {
	if len(letters) == 0 {
		return
	}
	// A stop must not leave letters behind that were delivered.
	if _, err := r.letters.Remove(context.WithoutCancel(ctx), letters); err != nil {
		r.log.Warn("dead letters were delivered but cannot be removed: they stay and may be delivered twice",
			slog.Int("letters", len(letters)), slog.Any("error", err))
	}
	r.release(letters...)
}

// redeliver owes the delta of a dead letter. It counts as attempted, so that it is never folded, and the checkpoint does not know it.
func (q *queue) redeliver(d *event.Delta, v verdict, closed, letter uint64, now time.Time) {
	e := q.append(d, pending)
	e.since, e.letter = now, letter
	e.work = reuse(&q.freeWork)
	e.work.closed, e.closed = closed, closed
	if v.err != nil {
		e.work.dead, e.unseen = v.err, true
	}
	q.place(e, v.lane)
	q.setStage(e, attempted)
	e.rested = true // it waits for nothing more to come
	e.lane.fresh--
}
