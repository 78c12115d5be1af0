package informer

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/deltarouter/deltarouter/pkg/event"
)

var (
	// ErrNotRunning is returned for what needs watches at work before [Factory.Run] and after.
	ErrNotRunning = errors.New("nothing is watched: the router is starting or stopping")
	// ErrSourceChanged is returned when a [Factory.Reconfigure] has changed a source while something was done with it.
	ErrSourceChanged = errors.New("a reload has changed the source meanwhile: ask again")
	// ErrNoSource is returned for a name that no source has.
	ErrNoSource = errors.New("there is no such source")
)

// Admit is like [Downstream]'s method.
type Admit func(ctx context.Context, d *event.Delta) (commit func(), err error)

// Resynced counts what was put through by a [Factory.Resync].
type Resynced struct {
	Objects int // that the cache has
	Taken   int // of them, those that somebody wanted
}

// Resync puts every object that the cache holds of a source through once more, as Sync, and as one round: see [event.NewID]. The deltas
// go the way of all others, so none overtakes a change of its object, but for admit in the place of Downstream's; nil: that one.
//
// It returns when all are put through, or with the error of ctx or of admit, [ErrSourceChanged], [ErrNotRunning] or [ErrNoSource]; what
// was put through until then stays so. A source that has not synced has in its cache what it has had so far.
func (f *Factory) Resync(ctx context.Context, source string, admit Admit) (done Resynced, err error) {
	return f.ResyncPaced(ctx, source, admit, nil)
}

// ResyncPaced is [Factory.Resync], and calls pace after each object, which may wait there: it holds nothing up.
func (f *Factory) ResyncPaced(ctx context.Context, source string, admit Admit, pace func(context.Context)) (done Resynced, err error) {
	if admit == nil {
		admit = f.cfg.Downstream.Admit
	}
	err = f.during(ctx, func(ctx context.Context) error {
		s, ok := f.source(source)
		if !ok {
			return ErrNoSource
		}
		round := f.cfg.Clock.Now()
		for _, w := range s.watches {
			if err := w.syncAll(ctx, s, round, admit, pace, &done); err != nil {
				return err
			}
		}
		return nil
	})
	return done, err
}

// ResyncObject is [Factory.Resync] for one object, if the cache of the source has it under this uid; round is the same for all that belong
// together. It works in a factory that is fed (see [Feed]), too.
func (f *Factory) ResyncObject(ctx context.Context, source string, key event.Key, uid string, round time.Time, admit Admit) error {
	once := func(ctx context.Context) error {
		s, ok := f.source(source)
		if !ok {
			return ErrNoSource
		}
		for _, w := range s.watches {
			if !w.awaitLoaded(ctx) {
				return ctx.Err()
			}
			if o := w.store.Get(key); o == nil || o.UID() != uid {
				continue
			}
			if err := w.sync(ctx, s, key, round, admit, &Resynced{}); err != nil {
				return err
			}
		}
		return nil
	}
	f.mu.RLock()
	fed := f.ctx == nil
	f.mu.RUnlock()
	if fed {
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

// resync puts every cached object through again, for one source, each time its period has passed.
func (w *Watch) resync(ctx context.Context, s *source) {
	tick := time.NewTicker(s.Resync)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		var done Resynced
		err := w.syncAll(ctx, s, w.factory.cfg.Clock.Now(), w.factory.cfg.Downstream.Admit, nil, &done)
		switch {
		case ctx.Err() != nil || errors.Is(err, ErrSourceChanged):
			return
		case err != nil:
			w.log.Error("a resync was not completed", "watch", w.name, "source", s.Name, "objects", done.Objects, "err", err)
		}
	}
}

// syncAll puts through what the cache holds at this moment. The deltas go one at a time in the order of the watch.
func (w *Watch) syncAll(ctx context.Context, s *source, round time.Time, admit Admit, pace func(context.Context), done *Resynced) error {
	if !w.awaitLoaded(ctx) {
		return ctx.Err()
	}
	for o := range w.store.All() {
		if err := w.sync(ctx, s, o.Key(), round, admit, done); err != nil {
			return err
		}
		if pace != nil {
			pace(ctx)
		}
	}
	return nil
}

// sync puts one object through as it is by now.
func (w *Watch) sync(ctx context.Context, s *source, key event.Key, round time.Time, admit Admit, done *Resynced) error {
	if !w.order.take(ctx) {
		return ctx.Err()
	}
	defer w.order.give()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if !slices.Contains(*w.sources.Load(), s) {
		return ErrSourceChanged
	}
	o := w.store.Get(key)
	if o == nil {
		return nil
	}
	d := &event.Delta{Source: s.Name, Op: event.Sync, New: o, Seen: round}
	commit, err := admit(ctx, d)
	if err != nil {
		return err
	}
	done.Objects++
	if commit != nil {
		done.Taken++
		w.cut.Lock()
		if w.ledger != nil {
			w.ledger.hold(o, []*event.Delta{d})
		}
		commit()
		w.cut.Unlock()
	}
	s.deltas[event.Sync].Inc()
	return nil
}
