package route

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/pipeline/queue"
	"github.com/deltarouter/deltarouter/internal/transit"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// Redeliver enqueues the delta of a dead letter again, see pipeline.Redeliver.
func (r *Route) Redeliver(ctx context.Context, deadLetter checkpoint.Letter) error {
	c := r.Generation()
	closed, only, err := c.allBut(deadLetter.Sink)
	if err != nil {
		return err
	}
	// The copy is a delta of its own: it has nothing to wait for, and ages from now on.
	d := *deadLetter.Delta
	d.Redelivered, transit.Of(&d).Durable, transit.Of(&d).Only = true, nil, only
	if err := r.reserveLetter(deadLetter.ID); err != nil {
		return err
	}
	// From here on the letter is reserved. A filter that no longer matches ends it.
	v, filtered := c.Evaluate(ctx, &d, deadLetter.Unseen)
	if err := ctx.Err(); err != nil {
		r.releaseLetters(deadLetter.ID)
		return err
	}
	if filtered {
		r.Generation().Count().Filtered.Inc()
		r.removeLetters(ctx, []uint64{deadLetter.ID})
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if c != r.Generation() { // the lane of v may be another one now
		delete(r.redelivering, deadLetter.ID)
		return fmt.Errorf("route %q has just changed: try again", c.Name)
	}
	e := r.backlog.add(queue.Item{
		Delta: &d, From: queue.DeadLetter, DeadLetter: deadLetter.ID, Since: r.now(), Closed: closed, Unseen: v.Err != nil,
	})
	e.Progress.Dead = v.Err
	r.backlog.queue.PlaceAttempted(e, v.Lane)
	r.Generation().Count().Matched.Inc()
	r.changed()
	return nil
}

// allBut returns the targets, one bit each, except the named one, which rejected the delta. only is
// its name if it is behind a target.
func (c *Generation) allBut(sink string) (closed uint64, only string, err error) {
	if sink == "" {
		return 0, "", nil
	}
	found := false
	for i, s := range c.Sinks {
		if s.Name == sink {
			found = true
			continue
		}
		if slices.Contains(s.Behind, sink) {
			found, only = true, sink
			continue
		}
		closed |= 1 << i
	}
	if !found {
		return 0, "", fmt.Errorf("route %q no longer delivers to %q: drop the dead letter", c.Name, sink)
	}
	return closed, only, nil
}

// reserveLetter checks that the route has room for the dead letter, and that it is not being
// redelivered already.
func (r *Route) reserveLetter(letter uint64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.redelivering[letter]:
		return errors.New("the dead letter is being redelivered already: wait for the result")
	case r.paused.on():
		return fmt.Errorf("route %q is paused: fix the cause, then run router resume %s", r.Generation().Name, r.Generation().Name)
	case !r.backlog.allPlaced:
		return fmt.Errorf("route %q is not ready: try again when its sources have synced, see router status", r.Generation().Name)
	case r.backlog.queue.Tailed() || r.backlog.room.headFull():
		return fmt.Errorf("the queue of route %q is full (queue.memory, queue.bytes): try again when its backlog is smaller", r.Generation().Name)
	}
	r.redelivering[letter] = true
	return nil
}

func (r *Route) releaseLetters(ids ...uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range ids {
		delete(r.redelivering, id)
	}
}

// removeLetters removes dead letters whose redelivery is done.
func (r *Route) removeLetters(ctx context.Context, ids []uint64) {
	if len(ids) == 0 {
		return
	}
	// A shutdown must not keep dead letters that were delivered.
	if _, err := r.env.Letters.Remove(context.WithoutCancel(ctx), ids); err != nil {
		r.Generation().Log().Warn("redelivered dead letters cannot be removed; they may be redelivered again",
			slog.Int("dead_letters", len(ids)), slog.Any("err", err))
	}
	r.releaseLetters(ids...)
}

// Work is a delta that another process has admitted, and that this one delivers.
type Work struct {
	Delta *event.Delta
	Key   string // the key of the route, if it is Keyed; otherwise the delta is ordered by its object
	Keyed bool
	Sink  string // the only target of a redelivered dead letter; empty: all
	// Made: Delta.Event is the event to deliver, as it is. No handler is called.
	Made   bool
	Number uint64 // identifies the delta in Config.Settled; not 0
}

// Take makes a delta pending. No filter, key or rule is evaluated, and nothing bounds the number of
// pending deltas: its sender does.
func (r *Route) Take(w *Work) error {
	c := r.Generation()
	closed, _, err := c.allBut(w.Sink)
	if err != nil {
		return fmt.Errorf("route %q: %w", c.Name, err)
	}
	lane := queue.Key{Name: w.Key}
	if !w.Keyed {
		lane = queue.ObjectKey(w.Delta)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.backlog.take(w.Delta, lane, w.Number, closed)
	if w.Made {
		p := r.backlog.queue.Start(e)
		p.Events, p.Handled = append(p.Events[:0], made(w)), true
	}
	r.changed()
	return nil
}

// made returns the finished event of a delta.
func made(w *Work) event.Event {
	e := *w.Delta.Event
	e.Of, e.Redelivered = w.Delta, w.Delta.Redelivered
	if w.Keyed {
		e.Key = w.Key
	}
	return e
}
