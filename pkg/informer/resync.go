package informer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/informer/internal/apply"
	"github.com/deltarouter/deltarouter/pkg/informer/internal/reflector"
)

var (
	// ErrNotRunning is returned by calls that need running watches, before and after [Factory.Run].
	ErrNotRunning = errors.New("no watch is running: the router is starting or stopping")
	// ErrSourceChanged is returned when a [Factory.Reconfigure] changes a source during an
	// operation on it.
	ErrSourceChanged = apply.ErrSourceChanged
	// ErrNoSource is returned for an unknown source.
	ErrNoSource = errors.New("there is no such source")
)

// Admit has the signature of [Downstream]'s method.
type Admit = apply.Admit

// Resynced counts the objects of a [Factory.Resync].
type Resynced = apply.Resynced

// Resync emits every cached object of a source once more, as Sync, in one round: see [event.New].
// The deltas take the usual way, so none overtakes a change of its object, but admit replaces the
// Admit of Downstream; nil: no replacement.
//
// It returns when all objects are done, or with the error of ctx or of admit, [ErrSourceChanged],
// [ErrNotRunning] or [ErrNoSource]; deltas that were committed until then stay committed. The cache
// of a source that is not synced has only a part of the objects.
func (f *Factory) Resync(ctx context.Context, source string, admit Admit) (done Resynced, err error) {
	return f.ResyncPaced(ctx, source, admit, nil)
}

// ResyncPaced is [Factory.Resync], and calls pace after each object. pace may wait; deltas of the
// watch continue meanwhile.
func (f *Factory) ResyncPaced(ctx context.Context, source string, admit Admit, pace func(context.Context)) (done Resynced, err error) {
	if admit == nil {
		admit = f.cfg.Downstream.Admit
	}
	err = f.during(ctx, func(ctx context.Context) error {
		s, ok := f.source(source)
		if !ok {
			return ErrNoSource
		}
		round := &apply.Round{Source: s.Source, Began: f.clock.Now(), Admit: admit, Pace: pace}
		defer func() { done = round.Done }()
		for _, w := range s.watches {
			if err := w.applier.SyncAll(ctx, round); err != nil {
				return err
			}
		}
		return nil
	})
	return done, err
}

// ResyncObject is [Factory.Resync] for one object, if the cache of the source has it under this
// uid. All calls that belong together have the same round. It also works in a factory with injected
// deltas (see [Injector]).
func (f *Factory) ResyncObject(ctx context.Context, source string, key event.Key, uid string, round time.Time, admit Admit) error {
	once := func(ctx context.Context) error {
		s, ok := f.source(source)
		if !ok {
			return ErrNoSource
		}
		for _, w := range s.watches {
			if !w.state.Loader().Wait(ctx) { // it may be among the saved objects
				return ctx.Err()
			}
			if o := w.state.Get(key); o == nil || o.UID() != uid {
				continue
			}
			if err := w.applier.Sync(ctx, &apply.Round{Source: s.Source, Began: round, Admit: admit}, key); err != nil {
				return err
			}
		}
		return nil
	}
	f.mu.RLock()
	running := f.ctx != nil
	f.mu.RUnlock()
	if !running { // the deltas are injected
		return once(ctx)
	}
	return f.during(ctx, once)
}

// during calls do while the watches run: Run waits for it, and ends its context.
func (f *Factory) during(ctx context.Context, do func(context.Context) error) error {
	f.mu.RLock()
	running := f.ctx
	if running == nil || running.Err() != nil {
		f.mu.RUnlock()
		return ErrNotRunning
	}
	f.running.Add(1)
	f.mu.RUnlock()
	defer f.running.Done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(running, cancel)() //nolint:contextcheck // it ends when either does
	err := do(ctx)
	if err != nil && running.Err() != nil {
		return ErrNotRunning
	}
	return err
}

// resync emits every cached object of a watch again, for one source, after each period.
func (f *Factory) resync(ctx context.Context, w *Watch, s *source) {
	tick := time.NewTicker(s.config.Resync)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		round := w.applier.NewRound(s.Source)
		err := w.applier.SyncAll(ctx, round)
		if ctx.Err() != nil || errors.Is(err, ErrSourceChanged) {
			return
		}
		if err != nil {
			f.cfg.Log.Error("resync not completed; the next one follows after its period", "watch", w.name, "source", s.Name, "objects", round.Done.Objects, "err", err)
		}
	}
}

// relistLook is the interval at which a [Factory.Relist] checks whether its list can still come.
const relistLook = 200 * time.Millisecond

// Relisted counts the objects and deltas of a [Factory.Relist].
type Relisted = reflector.Relisted

// Relist lists the watches of a source again and takes the answer of the API server as the truth,
// even where its states are older than those of the cache. The differences become deltas for all
// sources of the watches. It is the remedy if the resourceVersions of a restored etcd have passed
// those of the cache: see docs/GUARANTEES.md.
//
// It returns when the list is applied. An error other than those of [Factory.Resync] says why the
// API server cannot be listed now; the list is made as soon as that is possible.
func (f *Factory) Relist(ctx context.Context, source string) (found Relisted, err error) {
	err = f.during(ctx, func(ctx context.Context) error {
		s, ok := f.source(source)
		if !ok {
			return ErrNoSource
		}
		for _, w := range s.watches { // first: the other lists depend on them
			if w.finder != nil {
				if err := w.finder.awaitRelist(ctx, w.finder.relists.Ask()); err != nil {
					return err
				}
			}
		}
		asked := make([]*reflector.Relist, len(s.watches))
		for i, w := range s.watches {
			asked[i] = w.relists.Ask()
		}
		for i, w := range s.watches {
			if err := w.awaitRelist(ctx, asked[i]); err != nil {
				return err
			}
			one := asked[i].Found()
			found.Objects += one.Objects
			found.Deltas += one.Deltas
		}
		return nil
	})
	return found, err
}

// awaitRelist waits until the list is complete, the watch has ended, or the list cannot be made
// now.
func (w *Watch) awaitRelist(ctx context.Context, r *reflector.Relist) error {
	look := time.NewTicker(relistLook)
	defer look.Stop()
	for {
		select {
		case <-r.Done():
			return nil
		case <-w.stopped:
			return ErrSourceChanged
		case <-ctx.Done():
			return ctx.Err()
		case <-look.C:
		}
		if _, reason, _ := w.health.State(); reason != "" {
			return fmt.Errorf("%s cannot be listed now, and will be as soon as possible: %s", w.name, reason)
		}
	}
}
