package guest

import (
	"context"
	"errors"
	"fmt"

	"github.com/deltarouter/deltarouter/internal/callrecord"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/internal/guest/abi"
	"github.com/deltarouter/deltarouter/pkg/plugins/internal/guest/engine"
)

var _ callrecord.Replayer = (*Handler)(nil)

// record attaches the records of the last call to the errors of deltas that may become dead
// letters, while the loan has room for them.
func (h *Handler) record(l *loan, in *engine.Instance, used int64, results []plugins.Result) {
	var call, last *callrecord.Record
	for i := range results {
		r := &results[i]
		if r.Err == nil || plugins.ClassOf(r.Err) == plugins.Postponed {
			continue
		}
		if call == nil {
			if call = in.Record(); call == nil {
				return
			}
			call.Kind, call.Handler, call.Module, call.Settings, call.Fuel = h.kind, h.name, h.digest, h.settings, used
		}
		of := call.For(i)
		if !of.SameCall(last) {
			if l.recorded += of.Size(); l.recorded > callrecord.MaxBatch {
				return
			}
			last = of
		}
		of.Error = plugins.Bound(r.Err).Error()
		r.Err = callrecord.Attach(r.Err, of)
	}
}

// errNoCall is the error of a record without a call.
var errNoCall = errors.New("the record has no call")

// Replay implements [callrecord.Replayer].
func (h *Handler) Replay(ctx context.Context) (*callrecord.Outcome, error) {
	l, err := h.pool.borrow(ctx)
	if err != nil {
		return nil, err
	}
	defer l.giveBack(ctx)
	in, err := l.get(ctx)
	if err != nil {
		return nil, err
	}
	calls := h.replay.Record.Calls
	if len(calls) == 0 {
		return nil, errNoCall
	}
	in.Skip(max(h.replay.Record.Before, 0))
	before, last := calls[:len(calls)-1], &calls[len(calls)-1]
	for i := range before {
		if _, usable, err := in.Handle(ctx, before[i].Batch, maxSize(before[i].Batch)); err != nil && !usable {
			return nil, fmt.Errorf("call %d of %d before the failed one ends the guest: %w", i+1, len(before), h.left(err))
		}
	}
	o := &callrecord.Outcome{Module: h.digest, Settings: h.settings}
	results, err := in.Profile(ctx, last.Batch, maxSize(last.Batch), o)
	l.discard(ctx, false)
	result := plugins.Result{Verdict: plugins.Fail, Err: err}
	if err == nil {
		result = plugins.Result{}
		if n := h.replay.Record.Delta; n < len(results) {
			result = results[n]
		}
	}
	if o.Left, o.Verdict = h.replay.Left(), result.Verdict.String(); result.Err != nil {
		o.Error = plugins.Bound(result.Err).Error()
	}
	return o, ctx.Err()
}

// left adds the reason for which a replay has left the recorded call, if it has, to an error.
func (h *Handler) left(err error) error {
	if h.replay == nil || h.replay.Left() == "" {
		return err
	}
	return fmt.Errorf("%s: %w", h.replay.Left(), err)
}

// maxSize returns the maximum size of a batch in bytes.
func maxSize(batch []*event.Delta) int {
	size := abi.HeaderSize
	var sizes abi.Sizer
	for _, d := range batch {
		size += sizes.Delta(d)
	}
	return size
}
