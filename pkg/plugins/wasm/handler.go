package wasm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/deltarouter/deltarouter/internal/backoff"
	"github.com/deltarouter/deltarouter/internal/circuit"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/wasm/internal/abi"
	"github.com/deltarouter/deltarouter/pkg/plugins/wasm/internal/engine"
	"github.com/deltarouter/deltarouter/pkg/plugins/wasm/internal/host"
	"github.com/deltarouter/deltarouter/pkg/plugins/wasm/internal/limits"
)

// breakAfter is how many failures in a row open the breaker: each failure costs a new guest.
const breakAfter = 5

// breakFor is how long the breaker is open.
var breakFor = backoff.Policy{Min: time.Second, Max: time.Minute, Exact: true}

// handler implements plugins.Handler.
type handler struct {
	name    string
	digest  string // SHA-256 of the module, in hexadecimal digits
	limits  limits.Limits
	log     *slog.Logger
	engine  *engine.Engine
	pool    *pool
	breaker *circuit.Breaker
	burn    *burnRate
	worn    atomic.Bool // a guest was worn out soon, and none has lasted since
}

// newHandler compiles the module and starts a first instance, so that a guest that cannot start is
// known at once.
func newHandler(ctx context.Context, digest string, s engine.Settings) (*handler, error) {
	e, err := engine.New(ctx, s)
	if err != nil {
		return nil, err
	}
	h := &handler{
		name: s.Env.Name, digest: digest, limits: s.Limits, log: s.Env.Log,
		engine: e, pool: newPool(e, s.Limits.InstancesFor(s.Env.Workers), s.Env.Log), breaker: circuit.New(s.Host.Clock(), breakAfter, breakFor), burn: newBurnRate(int64(s.Limits.Fuel)),
	}
	in, err := e.Start(ctx)
	if err != nil {
		return nil, errors.Join(e.Hint(err), h.Close(ctx))
	}
	if in.Interpreted() {
		s.Env.Log.Warn("guests are interpreted, which is slow: this platform has no compiler, or forbids executable memory")
	}
	h.pool.idle = append(h.pool.idle, in)
	return h, nil
}

// Digest implements plugins.Pinned.
func (h *handler) Digest() string { return h.digest }

// Handle implements plugins.Handler. When ctx is done, a guest that computes ends at its next
// pause.
func (h *handler) Handle(ctx context.Context, batch []*event.Delta) ([]plugins.Result, error) {
	l, err := h.pool.borrow(ctx)
	if err != nil {
		return nil, err
	}
	defer l.giveBack(ctx)
	results := make([]plugins.Result, len(batch))
	for from := 0; from < len(batch); {
		n, size := h.callLength(batch[from:])
		permit, status := h.breaker.Allow()
		if permit == circuit.Refused {
			h.leave(batch[from:], results[from:], status)
			break
		}
		if permit == circuit.Probe && n > 1 {
			n, size = h.callLength(batch[from : from+1])
		}
		l.permit = permit
		if err := h.call(ctx, l, batch[from:from+n], size, results[from:from+n]); err != nil {
			h.breaker.Abandoned(permit)
			return nil, err
		}
		from += n
	}
	return results, nil
}

// callLength returns how many deltas go into one call, at least one: no more than will do with one
// delta's fuel, judged by what deltas burnt of late. It returns the bytes that they take at most,
// too.
func (h *handler) callLength(batch []*event.Delta) (deltas, size int) {
	l := &h.limits
	most := max(1, min(len(batch), l.Batch, int(int64(l.Fuel)/2/h.burn.perDelta())))
	size = abi.HeaderSize
	var sizes abi.Sizer
	for i, d := range batch[:most] {
		more := sizes.Delta(d)
		if i > 0 && size+more > int(l.Input) {
			return i, size
		}
		size += more
	}
	return most, size
}

// call gives the deltas, which take at most size bytes, to the guest. If that fails it halves them
// and tries again with a fresh guest, until only the deltas that it fails at have failed. The error
// is that of ctx.
func (h *handler) call(ctx context.Context, l *loan, batch []*event.Delta, size int, results []plugins.Result) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s := h.breaker.Status(); s.Open && l.permit != circuit.Probe {
		h.leave(batch, results, s)
		return nil
	}
	in, err := l.get(ctx)
	if err != nil {
		return h.noGuest(ctx, l.permit, batch, results, err)
	}
	fresh := in.Calls() == 0
	answers, usable, err := in.Handle(ctx, batch, size)
	if !usable {
		h.engine.Ended(in, err)
		l.discard(ctx, err != nil || in.Calls() < min(engine.RecycleSoon, int(h.limits.Calls)))
	}
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	wait := in.OverRate()
	if err == nil {
		h.lasted(l.permit, batch, in, usable)
		if !fresh { // its first delta tells nothing of the others
			h.burn.learn(in.Used(), len(batch))
		}
		if wait > 0 {
			unspend(answers, wait)
		}
		h.nameErrors(batch, answers)
		copy(results, answers) // if there are none, every delta is ok, as the results are already
		return nil
	}
	if wait > 0 {
		h.broke(l.permit, batch[0], err)
		h.put(batch, results, fmt.Errorf("%w: %w", host.ErrRate, err), wait)
		return nil
	}
	if len(batch) == 1 {
		if errors.Is(err, abi.ErrTooMuch) {
			h.lasted(l.permit, batch, in, usable)
			err = plugins.Reject(err)
		} else {
			h.broke(l.permit, batch[0], err)
		}
		results[0] = plugins.Result{Verdict: plugins.Fail, Err: h.about(batch[0], err)}
		return nil
	}
	first := (len(batch) + 1) / 2
	if errors.Is(err, host.ErrFuel) {
		h.burn.learn(2*int64(h.limits.Fuel), len(batch)) // at least half of that
		first = 1                                        // what a guest does once, it does then
	} else if errors.Is(err, host.ErrTime) {
		first = 1
	}
	return h.split(ctx, l, batch, results, first)
}

// split gives the deltas to the guest in calls, the first with at most so many of them, and none
// with more than there were before it.
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

// lasted counts a call that was answered, and a guest that was worn out by it. If that comes soon
// and again and again, each time a new guest takes what a start may take, and the breaker treats it
// as if it had broken.
func (h *handler) lasted(p circuit.Permit, batch []*event.Delta, in *engine.Instance, usable bool) {
	soon := in.Calls() < wornSoon && in.Calls() < int(h.limits.Calls)
	switch {
	case !usable && soon:
		h.worn.Store(true)
		h.broke(p, batch[0], errWorn)
	case soon && h.worn.Load():
		h.breaker.Abandoned(p)
	default:
		h.worn.Store(false)
		h.breaker.Succeeded()
	}
}

// wornSoon is how many calls a guest has to last at least.
const wornSoon = 4

var errWorn = errors.New("three quarters of its memory are in use within a few calls: raise limits.memory")

// broke counts a delta that a guest broke at.
func (h *handler) broke(p circuit.Permit, d *event.Delta, err error) {
	if opened, s := h.breaker.Failed(p, err, 0); opened {
		h.log.Warn("guests break at every delta; the handler is left alone for a while", "pause", s.Pause, "err", h.about(d, err))
	}
}

// noGuest puts deltas off because no guest could be started.
func (h *handler) noGuest(ctx context.Context, p circuit.Permit, batch []*event.Delta, results []plugins.Result, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	err = fmt.Errorf("starting a guest: %w", err)
	opened, s := h.breaker.Failed(p, err, 0)
	if opened {
		h.log.Warn("no guest can be started; the handler is left alone for a while", "pause", s.Pause, "err", err)
	}
	h.put(batch, results, err, s.Pause)
	return nil
}

// unspend puts off what a guest fails at after a request of its call was not sent: which deltas
// that was about is not known, and none of them counts as attempted.
func unspend(answers []plugins.Result, wait time.Duration) {
	for i, r := range answers {
		if r.Verdict != plugins.Retry && r.Verdict != plugins.Fail {
			continue
		}
		err := host.ErrRate
		if r.Err != nil {
			err = fmt.Errorf("%w: %w", host.ErrRate, r.Err)
		}
		answers[i] = plugins.Result{Verdict: plugins.Retry, Err: plugins.Postpone(err, wait)}
	}
}

// leave puts deltas off because the breaker is open.
func (h *handler) leave(batch []*event.Delta, results []plugins.Result, s circuit.Status) {
	err := fmt.Errorf("the handler is left alone for a while, as its guests broke at each of the last deltas: %w", s.Err)
	h.put(batch, results, err, s.Pause)
}

// put puts deltas off: the handler cannot take them at the moment, which is no fault of theirs.
func (h *handler) put(batch []*event.Delta, results []plugins.Result, err error, wait time.Duration) {
	for i, d := range batch {
		results[i] = plugins.Result{Verdict: plugins.Retry, Err: plugins.Postpone(h.about(d, err), wait)}
	}
}

// nameErrors says in every error which handler and which object it is about.
func (h *handler) nameErrors(batch []*event.Delta, results []plugins.Result) {
	for i := range results {
		if results[i].Err != nil {
			results[i].Err = h.about(batch[i], results[i].Err)
		}
	}
}

func (h *handler) about(d *event.Delta, err error) error {
	return fmt.Errorf("wasm %q: %s: %w", h.name, d, err)
}

// Timeout implements plugins.Timed: a guest that waits in a host function holds up a reload no
// longer than that.
func (h *handler) Timeout() time.Duration { return h.limits.Timeout }

// Close implements plugins.Handler. It waits for no guest: what one that still runs uses is freed
// when its call returns.
func (h *handler) Close(ctx context.Context) error {
	now, err := h.pool.close(ctx)
	if !now {
		h.log.Warn("the handler is closed while a guest runs; its memory is freed when the guest returns")
	}
	if err != nil {
		return fmt.Errorf("wasm %q: %w", h.name, err)
	}
	return nil
}
