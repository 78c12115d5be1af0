package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/deltarouter/deltarouter/pkg/api"
	"github.com/deltarouter/deltarouter/pkg/checkpoint"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/informer"
)

const (
	// expiryInterval is how often the age of the dead letters is looked at.
	expiryInterval = time.Minute
	// lettersAtOnce is how many dead letters are read into memory at a time.
	lettersAtOnce = 100
)

// expireLetters gives up dead letters that are too old, until ctx is done.
func (r *router) expireLetters(ctx context.Context) {
	ticker := time.NewTicker(expiryInterval)
	defer ticker.Stop()
	for {
		if err := r.state.letters.Expire(ctx, time.Now()); err != nil && ctx.Err() == nil {
			r.log.Warn("dead letters that are too old are kept for now", "err", err)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// letterBounds says how many dead letters are kept, and counts them. A flood says only once in an interval what it costs.
func (r *router) letterBounds() checkpoint.LettersConfig {
	cfg := r.plan.config.State.DeadLetters
	said := make(map[string]time.Time) // the calls come one at a time
	return checkpoint.LettersConfig{
		Max: cfg.Max, MaxAge: cfg.MaxAge,
		Count: func(route string, n int) { r.metrics.DeadLetters.WithLabelValues(route).Set(float64(n)) },
		Lost: func(route, reason string, n int) {
			r.metrics.LettersLost.WithLabelValues(route, reason).Add(float64(n))
			if time.Since(said[route]) > expiryInterval {
				said[route] = time.Now()
				r.log.Warn("dead letters are lost: the newest are kept, as state.deadLetters says", "route", route, "reason", reason, "letters", n)
			}
		},
	}
}

var errNoLetter = errors.New("there is no such dead letter")

// letterDesk is the dead letters for the API.
type letterDesk struct {
	r      *router
	synced func(source string) bool // false also if there is no such source
}

// Letters implements api.DeadLetters.
func (d letterDesk) Letters(ctx context.Context, route string, after uint64, limit int) ([]api.Letter, error) {
	var shown []api.Letter
	ids := d.r.state.letters.IDs(route, after, limit)
	err := d.each(ctx, ids, func(letter checkpoint.Letter) {
		s := show(letter)
		s.Delta.Object, s.Delta.OldObject = nil, nil
		if s.Delta.Event != nil {
			s.Delta.Event.Data = nil
		}
		shown = append(shown, s)
	})
	return shown, err
}

// Letter implements api.DeadLetters.
func (d letterDesk) Letter(id uint64) (*api.Letter, error) {
	letters, err := d.r.state.letters.Load([]uint64{id})
	if err != nil || len(letters) == 0 {
		return nil, err
	}
	shown := show(letters[0])
	return &shown, nil
}

// each calls f with the letters that are there, a few of them in memory at a time.
func (d letterDesk) each(ctx context.Context, ids []uint64, f func(checkpoint.Letter)) error {
	for chunk := range slices.Chunk(ids, lettersAtOnce) {
		letters, err := d.r.state.letters.Load(chunk)
		if err != nil {
			return err
		}
		for _, letter := range letters {
			if err := ctx.Err(); err != nil {
				return err
			}
			f(letter)
		}
	}
	return nil
}

func show(l checkpoint.Letter) api.Letter {
	d, o := l.Delta, l.Delta.Object()
	shown := api.Letter{
		ID: l.ID, Time: l.Time.UTC(), Route: l.Route, Sink: l.Sink, Error: l.Error, Attempts: l.Attempts,
		Delta: api.Delta{
			Op: d.Op.String(), Source: d.Source, Key: d.Key().String(), UID: o.UID(), ResourceVersion: o.ResourceVersion(),
			Initial: d.Initial, Stale: d.Stale, Redelivered: d.Redelivered, Object: o.JSON(),
		},
	}
	if d.New != nil && d.Old != nil {
		shown.Delta.OldObject = d.Old.JSON()
	}
	if e := d.Event; e != nil {
		shown.Delta.Event = &api.Event{ID: e.ID, Type: e.Type, Subject: e.Subject, Route: e.Route, Data: e.Data}
	}
	return shown
}

func (d letterDesk) selected(which api.Selection) []uint64 {
	if which.Route != "" {
		return d.r.state.letters.IDs(which.Route, 0, 0)
	}
	ids := slices.Clone(which.IDs)
	slices.Sort(ids) // older letters go first
	return slices.Compact(ids)
}

// Retry implements api.Changer.
func (d letterDesk) Retry(ctx context.Context, which api.Selection, current bool) (api.Outcome, error) {
	var outcome api.Outcome
	var gone []uint64
	ids := d.selected(which)
	found := make(map[uint64]bool, len(ids))
	err := d.each(ctx, ids, func(letter checkpoint.Letter) {
		found[letter.ID] = true
		if current || identityOnly(letter.Delta) {
			there, err := d.refresh(&letter)
			if err != nil {
				outcome.Fail(letter.ID, err)
				return
			}
			if !there {
				gone = append(gone, letter.ID)
				d.r.log.Info("a dead letter is dropped: its object is not there any more", "letter", letter.ID, "route", letter.Route,
					"delta", letter.Delta.String())
				return
			}
		}
		if err := d.r.pipeline.Redeliver(ctx, letter); err != nil {
			outcome.Fail(letter.ID, err)
			return
		}
		outcome.Done++
	})
	if err != nil {
		return outcome, err
	}
	d.missing(&outcome, which, found)
	if outcome.Gone, err = d.r.state.letters.Remove(ctx, gone); err != nil {
		return outcome, err
	}
	d.r.log.Info("dead letters are delivered again", "letters", outcome.Done, "dropped", outcome.Gone, "failed", outcome.NotDone)
	return outcome, nil
}

// missing reports the letters that were named and are not there.
func (d letterDesk) missing(outcome *api.Outcome, which api.Selection, found map[uint64]bool) {
	for _, id := range which.IDs {
		if !found[id] {
			outcome.Fail(id, errNoLetter)
		}
	}
}

// Drop implements api.Changer.
func (d letterDesk) Drop(ctx context.Context, which api.Selection) (outcome api.Outcome, err error) {
	ids := d.selected(which)
	there := make(map[uint64]bool)
	for _, id := range d.r.state.letters.IDs("", 0, 0) {
		there[id] = true
	}
	if outcome.Done, err = d.r.state.letters.Remove(ctx, ids); err != nil {
		return outcome, err
	}
	d.missing(&outcome, which, there)
	d.r.log.Info("dead letters were dropped by hand", "letters", outcome.Done)
	return outcome, nil
}

// identityOnly reports whether nothing but the identity was kept of the delta's object, and it may be there: then the route needs its
// present state.
func identityOnly(d *event.Delta) bool {
	r := d.Object().Resource()
	return r.Group == "" && r.Resource == "secrets" && !ended(d)
}

func ended(d *event.Delta) bool { return d.New == nil }

// refresh puts the present state of its object into a letter, as an update. It returns false if the object is not there any more; the
// letter of a delete is left as it is then, and what another route made of the delta stays in any case. The error says that nobody knows.
func (d letterDesk) refresh(letter *checkpoint.Letter) (there bool, err error) {
	was := letter.Delta
	if !d.synced(was.Source) {
		return false, fmt.Errorf("source %q is not configured any more or has not synced, so its objects are not known: see /readyz", was.Source)
	}
	key := was.Key()
	now := d.r.objects.Load().catalog.Get(was.Source, key.Namespace, key.Name)
	if now == nil || now.UID() != was.Object().UID() {
		return ended(was), nil
	}
	letter.Delta = &event.Delta{Source: was.Source, Op: event.Updated, Old: was.Old, New: now, Seen: time.Now(), Event: was.Event}
	return true, nil
}

// synced reports whether the cache has all objects of the source.
func (r *router) synced(source string) bool {
	return slices.ContainsFunc(r.factory.Statuses(), func(s informer.Status) bool { return s.Source == source && s.Synced })
}

// status tells the API what runs.
func (r *router) status() api.Status {
	var s api.Status
	for _, source := range r.factory.Statuses() {
		s.Sources = append(s.Sources, api.SourceStatus{Name: source.Source, Synced: source.Synced, Reason: source.Reason})
	}
	for _, route := range r.pipeline.Status() {
		shown := api.RouteStatus{Name: route.Name, Owed: route.Owed, OnDisk: route.OnDisk, Waiting: route.Waiting, Paused: route.Paused, HeldBy: route.HeldBy}
		if !route.Oldest.IsZero() {
			shown.Oldest = &route.Oldest
		}
		if r.state != nil {
			shown.DeadLetters = len(r.state.letters.IDs(route.Name, 0, 0))
		}
		s.Routes = append(s.Routes, shown)
	}
	return s
}
