package wasm

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// handler implements plugins.Handler.
type handler struct {
	engine  *engine
	pool    *pool
	breaker breaker
	burn    *burnRate
}

// newHandler compiles the module and starts a first instance, so that a guest that cannot start is known at once.
func newHandler(ctx context.Context, s settings) (*handler, error) {
	e, err := newEngine(ctx, s)
	if err != nil {
		return nil, err
	}
	h := &handler{engine: e, pool: newPool(e, s.limits.instances(s.env.Workers)), breaker: breaker{clock: s.rights.clock}, burn: newBurnRate(int64(s.limits.Fuel))}
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

// Handle implements plugins.Handler. A call into a guest cannot be interrupted, but it is short: ctx is heeded between calls.
func (h *handler) Handle(ctx context.Context, batch []*event.Delta) ([]plugins.Result, error) {
	l, err := h.pool.borrow(ctx)
	if err != nil {
		return nil, err
	}
	defer l.giveBack()
	results := make([]plugins.Result, len(batch))
	for from := 0; from < len(batch); {
		most, size := h.callLength(batch[from:])
		n, wait := h.breaker.allow(most)
		if n == 0 {
			h.leave(batch[from:], results[from:], wait)
			break
		}
		if n < most {
			_, size = h.callLength(batch[from : from+n])
		}
		if err := h.call(ctx, l, batch[from:from+n], size, results[from:from+n]); err != nil {
			h.breaker.abandoned()
			return nil, err
		}
		from += n
	}
	return results, nil
}

// callLength returns how many deltas go into one call, at least one: no more than will do with one delta's fuel, judged by what
// deltas burnt of late. It returns the bytes that they take at most, too.
func (h *handler) callLength(batch []*event.Delta) (deltas, size int) {
	l := &h.engine.limits
	most := max(1, min(len(batch), l.Batch, int(int64(l.Fuel)/2/h.burn.perDelta())))
	size = headerSize
	var sizes sizer
	for i, d := range batch[:most] {
		more := sizes.delta(d)
		if i > 0 && size+more > int(l.Input) {
			return i, size
		}
		size += more
	}
	return most, size
}

// call gives the deltas, which take at most size bytes, to the guest. If that fails it halves them and tries again with a fresh guest, until only the deltas that
// it fails at have failed. The error is that of ctx.
func (h *handler) call(ctx context.Context, l *loan, batch []*event.Delta, size int, results []plugins.Result) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if wait := h.breaker.wait(); wait > 0 {
		h.leave(batch, results, wait)
		return nil
	}
	in, err := l.get(ctx)
	if err != nil {
		return h.noGuest(ctx, batch, results, err)
	}
	fresh := in.calls == 0
	answers, usable, err := in.handle(ctx, batch, size)
	if !usable {
		h.engine.ended(in, err)
		l.discard(ctx, err != nil)
	}
	if err == nil {
		h.breaker.succeeded()
		if !fresh { // its first delta tells nothing of the others
			h.burn.learn(in.scope.tank.used(), len(batch))
		}
		h.name(batch, answers)
		copy(results, answers) // if there are none, every delta is ok, as the results are already
		return nil
	}
	if len(batch) == 1 {
		if errors.Is(err, errTooMuch) {
			err = plugins.Reject(err)
		} else {
			h.broke(batch[0], err)
		}
		results[0] = plugins.Result{Verdict: plugins.Fail, Err: h.about(batch[0], err)}
		return nil
	}
	first := (len(batch) + 1) / 2
	if errors.Is(err, errFuel) {
		h.burn.learn(2*int64(h.engine.limits.Fuel), len(batch)) // at least half of that
		first = 1                                               // what a guest does once, it does then
	}
	return h.split(ctx, l, batch, results, first)
}

// split gives the deltas to the guest in calls, the first with at most so many of them, and none with more than there were before it.
func (h *handler) split(ctx context.Context, l *loan, batch []*event.Delta, results []plugins.Result, first int) error {
	for from := 0; from < len(batch); {
		n, size := h.callLength(batch[from:min(from+max(first, from), len(batch))])
		to := from + n
		if err := h.call(ctx, l, batch[from:to], size, results[from:to]); err != nil {
			return err
		}
		from = to
	}
	return nil
}

// broke counts a delta that a guest broke at.
func (h *handler) broke(d *event.Delta, err error) {
	if pause, opened := h.breaker.failed(err); opened {
		h.engine.env.Log.Warn("guests break at every delta; the handler is left alone for a while", "pause", pause, "err", h.about(d, err))
	}
}

// noGuest puts deltas off because no guest could be started.
func (h *handler) noGuest(ctx context.Context, batch []*event.Delta, results []plugins.Result, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	err = fmt.Errorf("starting a guest: %w", err)
	pause, opened := h.breaker.failed(err)
	if opened {
		h.engine.env.Log.Warn("no guest can be started; the handler is left alone for a while", "pause", pause, "err", err)
	}
	h.put(batch, results, err, pause)
	return nil
}

// leave puts deltas off because the breaker is open.
func (h *handler) leave(batch []*event.Delta, results []plugins.Result, wait time.Duration) {
	err := fmt.Errorf("the handler is left alone for a while, as its guests broke at each of the last deltas: %w", h.breaker.reason())
	h.put(batch, results, err, wait)
}

// put puts deltas off: the handler cannot take them at the moment, which is no fault of theirs.
func (h *handler) put(batch []*event.Delta, results []plugins.Result, err error, wait time.Duration) {
	for i, d := range batch {
		results[i] = plugins.Result{Verdict: plugins.Retry, Err: plugins.Unavailable(h.about(d, err), wait)}
	}
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
	return fmt.Errorf("wasm %q: %s: %w", h.engine.env.Name, d, err)
}

// Close implements plugins.Handler.
func (h *handler) Close(ctx context.Context) error {
	h.pool.close(ctx)
	if err := h.engine.close(ctx); err != nil {
		return fmt.Errorf("wasm %q: %w", h.engine.env.Name, err)
	}
	return nil
}
