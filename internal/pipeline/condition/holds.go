package condition

import (
	"errors"
	"iter"
	"time"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/pipeline/rules"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// Holds are the delete holds of one route: deletes that are enqueued only if their objects are not
// created again in time.
type Holds struct {
	env *Env
	cfg *spec.Settings

	held     *rules.DeleteHolds // nil: there are no holds, and there were none
	caughtUp bool
	parked   []timer.Owner // expired before caughtUp
}

// On reports whether deletes are held.
func (h *Holds) On() bool { return h.held != nil && h.cfg.Hold > 0 }

// Wants reports whether d is a delete that must be held.
func (h *Holds) Wants(d *event.Delta) bool {
	return (d.Op == event.Deleted || d.Op == event.Deselected) && h.On()
}

// Len returns the number of held deletes.
func (h *Holds) Len() int {
	if h.held == nil {
		return 0
	}
	return h.held.Len()
}

// Bytes returns the bytes of the objects of the held deletes.
func (h *Holds) Bytes() int64 {
	if h.held == nil {
		return 0
	}
	return h.held.Bytes()
}

// Full reports whether the share has no room for another delete.
func (h *Holds) Full() bool { return h.env.Objects.Full() }

// Heavy reports whether the share has no room for another object: only its identity can be held.
func (h *Holds) Heavy() bool { return h.env.HeldBytes.Full() }

// Hold holds a delete. key is the key of the route that can cancel it beside the name; empty: none.
func (h *Holds) Hold(d *event.Delta, key string, now time.Time) { h.held.Hold(d, key, now) }

// Cancel drops the held deletes of an object that exists again, and of its key. It returns their
// number.
func (h *Holds) Cancel(source string, name event.Key, key string) (n int) {
	if h.held == nil {
		return 0
	}
	return h.held.Cancel(source, name, key)
}

// Fire returns the delete to enqueue after its timer has expired; nil: it was cancelled. exists:
// the object is in the cache, so its creation is not observed yet.
func (h *Holds) Fire(a *rules.DeleteHold, exists bool, now time.Time) *event.Delta {
	switch {
	case h.held == nil: // the route was removed
	case !h.caughtUp:
		h.parked = append(h.parked, a)
	case exists:
		h.held.Forget(a)
	default:
		return h.held.Fire(a, now)
	}
	return nil
}

// catchUp lets timers enqueue deletes from now on. It returns the timers that expired before.
func (h *Holds) catchUp() (parked []timer.Owner) {
	if h.held == nil {
		return nil
	}
	parked, h.parked = h.parked, nil
	h.caughtUp = true
	return parked
}

func (h *Holds) open() {
	share := rules.HoldShare{Objects: h.env.Objects, Bytes: h.env.HeldBytes}
	h.held = rules.NewDeleteHolds(h.cfg.Hold, share, h.env.Wheel, h.env.Owner.HoldDue)
	h.held.Untold = h.env.Untold
}

func (h *Holds) configure(cfg *spec.Settings, now time.Time) {
	h.cfg = cfg
	switch {
	case h.held == nil && cfg.Hold > 0:
		h.open()
	case h.held == nil:
	case cfg.Hold > 0:
		h.held.Configure(cfg.Hold, now)
	default:
		h.held.Abandon()
	}
}

func (h *Holds) close() {
	if h.held != nil {
		h.held.Close()
		h.held = nil
	}
}

// restore restores the held deletes from the records of the checkpoint.
func (h *Holds) restore(records []checkpoint.RuleRecord, now time.Time) (failed error) {
	decode := func(payload []byte) (*event.Delta, error) {
		return checkpoint.DecodeDelta(payload, func(source string, saved event.Resource) *event.Resource {
			return h.cfg.ResourceOf(source, &saved)
		})
	}
	for record := range ofKind(records, kindHold) {
		if h.held == nil {
			h.open() // the route no longer holds deletes
		}
		failed = errors.Join(failed, h.held.Restore(record, decode, now))
	}
	if h.held != nil && h.cfg.Hold == 0 {
		h.held.Abandon()
	}
	return failed
}

// dirty appends the changes since the last call.
func (h *Holds) dirty(records []checkpoint.RuleRecord, now time.Time) []checkpoint.RuleRecord {
	if h.held == nil {
		return records
	}
	return appendRecords(records, kindHold, h.held.Dirty(now, checkpoint.EncodeDelta))
}

// active yields the held deletes, in no order.
func (h *Holds) active(now time.Time) iter.Seq[Holding] {
	return func(yield func(Holding) bool) {
		if !h.On() {
			return
		}
		for a := range h.held.All() {
			if !yield(h.describe(a, now)) {
				return
			}
		}
	}
}

// of returns the held delete of an object.
func (h *Holds) of(source string, key event.Key, now time.Time) (holding Holding, ok bool) {
	if !h.On() {
		return holding, false
	}
	a := h.held.Of(source, key)
	if a == nil {
		return holding, false
	}
	return h.describe(a, now), true
}

func (h *Holds) describe(a *rules.DeleteHold, now time.Time) Holding {
	d := a.Delta()
	since, due := h.held.Describe(a, now)
	return Holding{Source: d.Source, Key: d.Key(), UID: d.Object().UID(), Since: since, Due: due, State: "gone"}
}
