package route

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/pipeline/queue"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// redeliveries are the dead letters that a route redelivers.
type redeliveries struct {
	*Route

	pending map[uint64]bool // the pending ones
}

// Redeliver enqueues the delta of a dead letter again, see pipeline.Redeliver.
func (r *Route) Redeliver(ctx context.Context, deadLetter checkpoint.Letter) error {
	return r.redeliveries.redeliver(ctx, deadLetter)
}

func (l *redeliveries) redeliver(ctx context.Context, deadLetter checkpoint.Letter) error {
	c := l.Config()
	closed, only, err := c.allBut(deadLetter.Sink)
	if err != nil {
		return err
	}
	d := *deadLetter.Delta
	d.Redelivered, d.Transit().Durable, d.Transit().Only = true, nil, only
	if err := l.reserve(deadLetter.ID); err != nil {
		return err
	}
	v, filtered := c.Evaluate(ctx, &d, deadLetter.Unseen)
	if err := ctx.Err(); err != nil {
		l.release(deadLetter.ID)
		return err
	}
	if filtered {
		l.Config().Count.Filtered.Inc()
		l.remove(ctx, []uint64{deadLetter.ID})
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if c != l.Config() {
		delete(l.pending, deadLetter.ID)
		return fmt.Errorf("route %q has just changed: try again", c.Name)
	}
	e := l.backlog.Add(queue.Item{
		Delta: &d, From: queue.DeadLetter, DeadLetter: deadLetter.ID, Since: l.now(), Closed: closed, Unseen: v.Err != nil,
	})
	e.Progress.Dead = v.Err
	l.backlog.Queue.PlaceAttempted(e, v.Lane)
	l.Config().Count.Matched.Inc()
	l.changed()
	return nil
}

// allBut returns the targets, one bit each, except the named one, which rejected the delta. only is
// its name if it is behind a target.
func (c *Config) allBut(sink string) (closed uint64, only string, err error) {
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

// reserve checks that the route has room for the dead letter, and that it is not being redelivered
// already.
func (l *redeliveries) reserve(letter uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.pending[letter]:
		return errors.New("the dead letter is being redelivered already: wait for the result")
	case l.paused.on():
		return fmt.Errorf("route %q is paused: fix the cause, then run router resume %s", l.Config().Name, l.Config().Name)
	case !l.backlog.AllPlaced:
		return fmt.Errorf("route %q is not ready: try again when its sources have synced, see router status", l.Config().Name)
	case l.backlog.Queue.Tailed() || l.backlog.Room.HeadFull():
		return fmt.Errorf("the queue of route %q is full (queue.memory, queue.bytes): try again when its backlog is smaller", l.Config().Name)
	}
	l.pending[letter] = true
	return nil
}

func (l *redeliveries) release(ids ...uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range ids {
		delete(l.pending, id)
	}
}

// remove removes dead letters whose redelivery is done.
func (l *redeliveries) remove(ctx context.Context, ids []uint64) {
	if len(ids) == 0 {
		return
	}
	// A shutdown must not keep dead letters that were delivered.
	if _, err := l.env.Letters.Remove(context.WithoutCancel(ctx), ids); err != nil {
		l.Config().Log.Warn("redelivered dead letters cannot be removed; they may be redelivered again",
			slog.Int("dead_letters", len(ids)), slog.Any("err", err))
	}
	l.release(ids...)
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
func (c *Crew) Take(w *Work) error { return c.route.redeliveries.take(w) }

func (l *redeliveries) take(w *Work) error {
	c := l.Config()
	closed, _, err := c.allBut(w.Sink)
	if err != nil {
		return fmt.Errorf("route %q: %w", c.Name, err)
	}
	lane := queue.Key{Name: w.Key}
	if !w.Keyed {
		lane = queue.ObjectKey(w.Delta)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.backlog.Take(w.Delta, lane, w.Number, closed)
	if w.Made {
		p := l.backlog.Queue.Start(e)
		p.Events, p.Handled = append(p.Events[:0], made(w)), true
	}
	l.changed()
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
