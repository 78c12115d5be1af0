package route

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/pipeline/queue"
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
	closed, err := c.allBut(deadLetter.Sink)
	if err != nil {
		return err
	}
	d := *deadLetter.Delta
	d.Redelivered, d.Transit().Durable = true, nil
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

// allBut returns the targets, one bit each, except the named one, which rejected the delta.
func (c *Config) allBut(sink string) (closed uint64, err error) {
	if sink == "" {
		return 0, nil
	}
	found := false
	for i, s := range c.Sinks {
		if s.Name == sink {
			found = true
			continue
		}
		closed |= 1 << i
	}
	if !found {
		return 0, fmt.Errorf("route %q no longer delivers to %q: drop the dead letter", c.Name, sink)
	}
	return closed, nil
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
	case l.backlog.Queue.Tailed() || l.backlog.Queue.Len() >= l.Config().Capacity:
		return fmt.Errorf("the queue of route %q is full (queue.memory): try again when its backlog is smaller", l.Config().Name)
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
