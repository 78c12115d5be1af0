package apply

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// ErrSourceChanged is returned when a reload changes a source during an operation on it.
var ErrSourceChanged = errors.New("a reload has changed the source meanwhile: repeat the request")

// Resynced counts the objects of a resync.
type Resynced struct {
	Objects int // in the cache
	Taken   int // of them, those that a route wanted
}

// Round is one resync of a source.
type Round struct {
	Source *Source
	Began  time.Time // the same for all deltas of the round
	Admit  Admit
	Pace   func(context.Context) // called after each object; nil: no call
	Done   Resynced
}

// NewRound returns a round of a source that begins now and uses the Admit of Downstream.
func (a *Applier) NewRound(s *Source) *Round {
	return &Round{Source: s, Began: a.cfg.Clock.Now(), Admit: a.cfg.Downstream.Admit}
}

// SyncAll emits every object that the cache has at this moment. The deltas take the turn of the
// watch one by one.
func (a *Applier) SyncAll(ctx context.Context, r *Round) error {
	if !a.cfg.State.Loader().Wait(ctx) {
		return ctx.Err()
	}
	for o := range a.cfg.State.All() {
		if err := a.Sync(ctx, r, o.Key()); err != nil {
			return err
		}
		if r.Pace != nil {
			r.Pace(ctx)
		}
	}
	return nil
}

// Sync emits one object in its present state.
func (a *Applier) Sync(ctx context.Context, r *Round, key event.Key) error {
	if !a.turn.take(ctx) {
		return ctx.Err()
	}
	defer a.turn.give()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	// During the wait for the turn, a reload may have replaced the sources, and an event may have
	// ended the object.
	if !slices.Contains(a.cfg.Sources.All(), r.Source) {
		return ErrSourceChanged
	}
	o := a.cfg.State.Get(key)
	if o == nil {
		return nil
	}
	d := &event.Delta{Source: r.Source.Name, Op: event.Sync, New: o, Seen: r.Began}
	admission, err := r.Admit(ctx, d)
	if err != nil {
		return err
	}
	r.Done.Objects++
	if admission != nil { // the store stays as it is, so Commit suffices
		r.Done.Taken++
		a.cfg.State.Commit(d, admission)
	}
	r.Source.deltas[event.Sync].Add(1)
	return nil
}
