package wasm

import (
	"context"
	"errors"
	"fmt"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// handler implements plugins.Handler.
type handler struct {
	engine *engine
	pool   *pool
}

// newHandler compiles the module and starts a first instance, so that a guest that cannot start is known at once.
func newHandler(ctx context.Context, s settings) (*handler, error) {
	e, err := newEngine(ctx, s)
	if err != nil {
		return nil, err
	}
	h := &handler{engine: e, pool: newPool(e, s.env.Workers)}
	in, err := e.start(ctx)
	if err != nil {
		return nil, errors.Join(err, h.Close(ctx))
	}
	if in.interpreted() {
		s.env.Log.Warn("guests are interpreted, which is slow: this platform has no compiler, or forbids executable memory")
	}
	h.pool.idle = append(h.pool.idle, in)
	return h, nil
}

// Handle implements plugins.Handler. A call into a guest cannot be interrupted: ctx is heeded between calls.
func (h *handler) Handle(ctx context.Context, batch []*event.Delta) ([]plugins.Result, error) {
	l, err := h.pool.borrow(ctx)
	if err != nil {
		return nil, err
	}
	defer l.giveBack()
	results := make([]plugins.Result, len(batch))
	for from := 0; from < len(batch); {
		to := from + callLength(batch[from:])
		if err := h.call(ctx, l, batch[from:to], results[from:to]); err != nil {
			return nil, err
		}
		from = to
	}
	return results, nil
}

// callLength returns how many deltas go into one call, at least one.
func callLength(batch []*event.Delta) int {
	size := headerSize
	for i, d := range batch {
		size += deltaSize(d)
		if i > 0 && size > maxInput || i == maxDeltas {
			return i
		}
	}
	return len(batch)
}

// call gives the deltas to the guest. If that fails it halves them and tries again with a fresh guest, until only the deltas that
// it fails at have failed. An error means that there is no guest to be had.
func (h *handler) call(ctx context.Context, l *loan, batch []*event.Delta, results []plugins.Result) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	in, err := l.get(ctx)
	if err != nil {
		return fmt.Errorf("wasm %q: starting a guest: %w", h.engine.settings.env.Name, err)
	}
	answers, usable, err := in.handle(ctx, batch)
	if !usable {
		l.discard(ctx)
	}
	if err == nil {
		h.name(batch, answers)
		copy(results, answers)
		return nil
	}
	if len(batch) == 1 {
		if errors.Is(err, errTooMuch) {
			err = plugins.Reject(err)
		}
		results[0] = plugins.Result{Verdict: plugins.Fail, Err: h.about(batch[0], err)}
		return nil
	}
	half := len(batch) / 2
	if err := h.call(ctx, l, batch[:half], results[:half]); err != nil {
		return err
	}
	return h.call(ctx, l, batch[half:], results[half:])
}

// name says in every error which handler and which object it is about.
func (h *handler) name(batch []*event.Delta, results []plugins.Result) {
	for i := range results {
		if results[i].Err != nil {
			results[i].Err = h.about(batch[i], results[i].Err)
		}
	}
}

func (h *handler) about(d *event.Delta, err error) error {
	return fmt.Errorf("wasm %q: %s: %w", h.engine.settings.env.Name, d, err)
}

// Close implements plugins.Handler.
func (h *handler) Close(ctx context.Context) error {
	h.pool.close(ctx)
	if err := h.engine.close(ctx); err != nil {
		return fmt.Errorf("wasm %q: %w", h.engine.settings.env.Name, err)
	}
	return nil
}
