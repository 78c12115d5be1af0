package guest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/deltarouter/deltarouter/internal/backoff"
	"github.com/deltarouter/deltarouter/internal/callrecord"
	"github.com/deltarouter/deltarouter/internal/circuit"
	"github.com/deltarouter/deltarouter/internal/fields"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/internal/guest/abi"
	"github.com/deltarouter/deltarouter/pkg/plugins/internal/guest/engine"
	"github.com/deltarouter/deltarouter/pkg/plugins/internal/guest/host"
)

// breakAfter is the number of consecutive failures that open the breaker. Each failure costs a new
// guest.
const breakAfter = 5

// breakFor is the duration for which the breaker is open.
var breakFor = backoff.Policy{Min: time.Second, Max: time.Minute, Exact: true}

// Handler passes deltas to guests. It implements [plugins.Handler].
type Handler struct {
	kind      string // of the configuration
	name      string
	digest    string // of the content that it runs: SHA-256 in hexadecimal digits
	settings  string // a hash of the other inputs of guests
	limits    abi.Limits
	fields    *fields.Set // that guests get
	log       *slog.Logger
	engine    *engine.Engine
	pool      *pool
	breaker   *circuit.Breaker
	fuelRate  *fuelRate
	exhausted atomic.Bool        // a guest was worn out early, and none has lasted since
	replay    *callrecord.Replay // nil: the handler works as usual
}

// New returns a handler. It compiles the module and starts a first instance, so that a guest that
// cannot start is an error at once.
func New(ctx context.Context, of Description, s engine.Settings) (*Handler, error) {
	set, declared, err := of.fieldsOf(s.Module)
	if err != nil {
		return nil, err
	}
	e, err := engine.New(ctx, s)
	if err != nil {
		return nil, err
	}
	h := &Handler{
		kind: of.Kind, name: s.Env.Name, digest: of.Digest, settings: s.Host.Settings(set.Paths()), limits: s.Limits, fields: set, log: s.Env.Log, replay: callrecord.ReplayOf(s.Env.Replay),
		engine: e, pool: newPool(e, s.Limits.InstancesFor(s.Env.Workers), s.Env.Log), breaker: circuit.New(s.Host.Clock(), breakAfter, breakFor), fuelRate: newFuelRate(int64(s.Limits.Fuel)),
	}
	in, err := e.Start(ctx)
	if err != nil {
		return nil, errors.Join(e.Hint(h.left(err)), h.Close(ctx))
	}
	if in.Interpreted() {
		s.Env.Log.Warn("guests are interpreted, which is slow: this platform has no compiler, or forbids executable memory")
	}
	if declared {
		s.Env.Log.Info("the module declares the fields that it gets", "fields", set.Paths())
	}
	h.pool.idle = append(h.pool.idle, in)
	return h, nil
}

// Digest implements [plugins.Pinned].
func (h *Handler) Digest() string { return h.digest }

// Fuel returns the limit of one delta's fuel.
func (h *Handler) Fuel() int64 { return int64(h.limits.Fuel) }

// Handle implements [plugins.Handler]. When ctx is done, a running guest ends at its next pause.
func (h *Handler) Handle(ctx context.Context, batch []*event.Delta) ([]plugins.Result, error) {
	l, err := h.pool.borrow(ctx)
	if err != nil {
		return nil, err
	}
	defer l.giveBack(ctx)
	batch = h.fields.Batch(batch)
	results := make([]plugins.Result, len(batch))
	for from := 0; from < len(batch); {
		n, size := h.callLength(batch[from:])
		permit, status := h.breaker.Allow()
		if permit == circuit.Refused {
			h.postponeOpenBreaker(batch[from:], results[from:], status)
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

// callLength returns the number of deltas for one call, at least one, and their maximum size in
// bytes. By the recent fuel per delta, the call should not need more than the fuel of one delta.
func (h *Handler) callLength(batch []*event.Delta) (deltas, size int) {
	l := &h.limits
	most := max(1, min(len(batch), l.Batch, int(int64(l.Fuel)/2/h.fuelRate.perDelta())))
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

// call passes the deltas, with a maximum size in bytes, to the guest. If the call fails, it halves
// the deltas and tries again with a new guest, until each faulty delta has failed alone. The error
// is that of ctx.
func (h *Handler) call(ctx context.Context, l *loan, batch []*event.Delta, size int, results []plugins.Result) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s := h.breaker.Status(); s.Open && l.permit != circuit.Probe {
		h.postponeOpenBreaker(batch, results, s)
		return nil
	}
	in, err := l.get(ctx)
	if err != nil {
		return h.noGuest(ctx, l.permit, batch, results, err)
	}
	fresh := in.Calls() == 0
	answers, usable, err := in.Handle(ctx, batch, size)
	for n := 0; n < plugins.KVRepeats && usable && errors.Is(err, plugins.ErrKVConflict); n++ {
		answers, usable, err = in.Handle(ctx, batch, size)
	}
	used := in.Used()
	if !usable {
		h.engine.Ended(in, err)
		l.discard(ctx, err != nil || !in.Exited() && in.Calls() < min(engine.RecycleSoon, int(h.limits.Calls)))
	}
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	if err == nil || errors.Is(err, host.ErrMixed) {
		if !fresh { // its first delta is more expensive
			h.fuelRate.learn(used, len(batch))
		}
		h.answered(l, in, used, batch, answers, usable)
		copy(results, answers) // without answers every delta is ok, as results is already
		if err != nil {
			return h.passAgain(ctx, l, batch, results)
		}
		return nil
	}
	return h.unanswered(ctx, l, in, used, batch, results, err, usable)
}

// answered records the answers of a call, which has used some fuel.
func (h *Handler) answered(l *loan, in *engine.Instance, used int64, batch []*event.Delta, answers []plugins.Result, usable bool) {
	if outage := in.Outage(); outage == nil || !allUndone(answers) {
		h.callSucceeded(l.permit, batch, in, usable)
	} else {
		h.cutOff(l.permit, outage)
	}
	if wait := in.OverRate(); wait > 0 {
		undoRateFailures(answers, wait)
	}
	h.record(l, in, used, answers)
	in.Trim()
	h.nameErrors(answers)
}

// unanswered enters the results of a call that failed with err, or divides its deltas.
func (h *Handler) unanswered(ctx context.Context, l *loan, in *engine.Instance, used int64, batch []*event.Delta, results []plugins.Result, err error, usable bool) error {
	wait, outage := in.OverRate(), in.Outage()
	if plugins.ClassOf(err) == plugins.Postponed { // by a service of the host
		h.breaker.Abandoned(l.permit)
		h.postpone(batch, results, err, plugins.RetryAfter(err))
		return nil
	}
	if wait > 0 {
		h.callFailed(l.permit, batch[0], err)
		h.postpone(batch, results, fmt.Errorf("%w: %w", host.ErrRate, err), wait)
		return nil
	}
	if outage != nil {
		h.cutOff(l.permit, outage)
		h.postpone(batch, results, fmt.Errorf("%w: %w", outage, err), 0)
		return nil
	}
	if len(batch) == 1 {
		if errors.Is(err, abi.ErrTooMuch) {
			h.callSucceeded(l.permit, batch, in, usable)
			err = plugins.Reject(err)
		} else {
			h.callFailed(l.permit, batch[0], err)
		}
		results[0] = plugins.Result{Verdict: plugins.Fail, Err: err}
		h.record(l, in, used, results)
		h.nameErrors(results)
		return nil
	}
	return h.split(ctx, l, batch, results, h.firstPart(len(batch), err))
}

// firstPart returns the number of deltas in the first call after a call with more failed.
func (h *Handler) firstPart(deltas int, err error) int {
	switch {
	case errors.Is(err, host.ErrFuel):
		h.fuelRate.learn(2*int64(h.limits.Fuel), deltas) // a lower bound: at least half of it
		return 1                                         // with the one-time work of the new guest
	case errors.Is(err, host.ErrTime):
		return 1
	}
	return (deltas + 1) / 2
}

// split passes the deltas to the guest in several calls. The first call has at most first deltas,
// and no further call has more deltas than all calls before it.
func (h *Handler) split(ctx context.Context, l *loan, batch []*event.Delta, results []plugins.Result, first int) error {
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

// passAgain passes those deltas to the guest again that it is done with, after a call whose writes
// were dropped because of the other deltas.
func (h *Handler) passAgain(ctx context.Context, l *loan, batch []*event.Delta, results []plugins.Result) error {
	var done []*event.Delta
	var at []int // their places in the batch
	for i, r := range results {
		if r.Verdict.Done() {
			done, at = append(done, batch[i]), append(at, i)
		}
	}
	again := make([]plugins.Result, len(done))
	if err := h.split(ctx, l, done, again, len(done)); err != nil {
		return err
	}
	for i, r := range again {
		results[at[i]] = r
	}
	return nil
}

// callSucceeded counts an answered call, and a guest that the call has worn out. If new guests are
// worn out early again and again, each one uses the limits of a start, so the breaker counts that
// as a failure.
func (h *Handler) callSucceeded(p circuit.Permit, batch []*event.Delta, in *engine.Instance, usable bool) {
	soon := in.Calls() < exhaustedSoon && in.Calls() < int(h.limits.Calls) && !in.Exited()
	switch {
	case !usable && soon:
		h.exhausted.Store(true)
		h.callFailed(p, batch[0], errExhausted)
	case soon && h.exhausted.Load():
		h.breaker.Abandoned(p)
	default:
		h.exhausted.Store(false)
		h.breaker.Succeeded()
	}
}

// exhaustedSoon is the number of calls that a guest must last.
const exhaustedSoon = 4

var errExhausted = errors.New("three quarters of its memory are in use within a few calls: raise limits.memory")

// allUndone reports whether no delta of a call is done.
func allUndone(answers []plugins.Result) bool {
	return len(answers) > 0 && !slices.ContainsFunc(answers, func(r plugins.Result) bool { return r.Verdict.Done() })
}

// cutOff counts a call that failed because a host that it needs does not answer.
func (h *Handler) cutOff(p circuit.Permit, err error) {
	if opened, s := h.breaker.Failed(p, err, 0); opened {
		h.log.Warn("a host that the handler needs does not answer; the circuit breaker is open", "pause", s.Pause, "err", err)
	}
}

// Unavailable returns since when and why the circuit breaker is open. nil: it is not.
func (h *Handler) Unavailable() (since time.Time, reason error) {
	s := h.breaker.Status()
	return s.Since, s.Err
}

// callFailed counts a delta that broke a guest.
func (h *Handler) callFailed(p circuit.Permit, d *event.Delta, err error) {
	if opened, s := h.breaker.Failed(p, err, 0); opened {
		h.log.Warn("guests fail at every delta; the circuit breaker is open", "pause", s.Pause, "delta", d.String(), "err", h.named(err))
	}
}

// noGuest postpones deltas because no guest could be started.
func (h *Handler) noGuest(ctx context.Context, p circuit.Permit, batch []*event.Delta, results []plugins.Result, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	err = fmt.Errorf("starting a guest: %w", err)
	if plugins.ClassOf(err) == plugins.Postponed {
		h.breaker.Abandoned(p)
		h.postpone(batch, results, err, plugins.RetryAfter(err))
		return nil
	}
	opened, s := h.breaker.Failed(p, err, 0)
	if opened {
		h.log.Warn("no guest can be started; the circuit breaker is open", "pause", s.Pause, "err", err)
	}
	h.postpone(batch, results, err, s.Pause)
	return nil
}

// undoRateFailures postpones the failed deltas of a call with an unsent request. It is unknown
// which delta needed the request, so none counts as an attempt.
func undoRateFailures(answers []plugins.Result, wait time.Duration) {
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

// postponeOpenBreaker postpones deltas because the breaker is open.
func (h *Handler) postponeOpenBreaker(batch []*event.Delta, results []plugins.Result, s circuit.Status) {
	err := fmt.Errorf("the circuit breaker is open because the last calls failed, each one of them: %w", s.Err)
	h.postpone(batch, results, err, s.Pause)
}

// postpone postpones deltas, because the handler cannot take them at the moment.
func (h *Handler) postpone(batch []*event.Delta, results []plugins.Result, err error, wait time.Duration) {
	err = plugins.Postpone(h.named(err), wait)
	for i := range batch {
		results[i] = plugins.Result{Verdict: plugins.Retry, Err: err}
	}
}

// nameErrors adds the handler to each error.
func (h *Handler) nameErrors(results []plugins.Result) {
	for i := range results {
		if results[i].Err != nil {
			results[i].Err = h.named(results[i].Err)
		}
	}
}

func (h *Handler) named(err error) error { return fmt.Errorf("%s %q: %w", h.kind, h.name, err) }

// Timeout implements [plugins.Timed]: a guest that waits in a host function delays a reload no
// longer than that.
func (h *Handler) Timeout() time.Duration { return h.limits.Timeout }

// Close implements [plugins.Handler]. It does not wait for running guests: their resources are
// freed when their calls return.
func (h *Handler) Close(ctx context.Context) error {
	now, err := h.pool.close(ctx)
	if !now {
		h.log.Warn("the handler is closed while a guest runs; its memory is freed when the guest returns")
	}
	if err != nil {
		return h.named(err)
	}
	return nil
}
