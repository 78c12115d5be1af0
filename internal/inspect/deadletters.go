package inspect

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/deltarouter/deltarouter/internal/access"
	"github.com/deltarouter/deltarouter/internal/api"
	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/internal/pipeline"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
)

const (
	// expiryInterval is the interval between two checks for expired dead letters.
	expiryInterval = time.Minute
	// lettersAtOnce bounds the dead letters in memory.
	lettersAtOnce = 100
	// lettersShare is the share of state.maxSize, as 1/n, that all dead letters may have, and
	// ownedShare that of the routes of one include or namespace. Backlogs may have half, so that a
	// quarter is left to objects, rules and kv.
	lettersShare, ownedShare = 4, 16
)

// Expire drops expired dead letters until ctx is done.
func (d *DeadLetters) Expire(ctx context.Context) {
	ticker := time.NewTicker(expiryInterval)
	defer ticker.Stop()
	for {
		if err := d.store.Expire(ctx, time.Now()); err != nil && ctx.Err() == nil {
			d.log.Warn("expired dead letters could not be dropped; trying again in a minute", "err", err)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// bounds are what limits dead letters, by the reasons for their loss.
var bounds = map[string]string{ //nolint:gochecknoglobals // never changed
	checkpoint.LostAge:   "state.deadLetters.maxAge limits their age",
	checkpoint.LostCount: "state.deadLetters.max limits their number",
	checkpoint.LostShare: "all may have a quarter of state.maxSize, and those of an include or namespace a sixteenth",
}

// Bounds returns the limits and counters of dead letters. It logs a flood of a route for one reason
// once in an interval.
func (d *DeadLetters) Bounds(cfg config.State) checkpoint.LettersConfig {
	said := make(map[[2]string]time.Time) // calls are sequential
	return checkpoint.LettersConfig{
		Max: cfg.DeadLetters.Max, MaxAge: cfg.DeadLetters.MaxAge,
		Share: checkpoint.LettersShare{Bytes: int64(cfg.MaxSize) / lettersShare, Owned: int64(cfg.MaxSize) / ownedShare},
		Count: func(id string, n int) {
			route := routeNameOf(d.routes(), id)
			d.metrics.DeadLetters.WithLabelValues(route).Set(float64(n))
			for reason := range bounds {
				d.metrics.LettersLost.WithLabelValues(route, reason) // increase() needs the 0
			}
		},
		Lost: func(id, reason string, n int) {
			route := routeNameOf(d.routes(), id)
			d.metrics.LettersLost.WithLabelValues(route, reason).Add(float64(n))
			if reason != checkpoint.LostAge {
				d.evict(id, n)
			}
			if what := [2]string{route, reason}; time.Since(said[what]) > expiryInterval {
				said[what] = time.Now()
				d.log.Warn("old dead letters were dropped", "route", route, "reason", reason, "bound", bounds[reason], "letters", n)
			}
		},
	}
}

// routeNameOf returns the name of the route with an id; routeIDOf is its inverse. For a removed
// route, both return the id.
func routeNameOf(routes []*config.Route, id string) string {
	for _, route := range routes {
		if route.ID == id {
			return route.Name
		}
	}
	return id
}

func routeIDOf(routes []*config.Route, name string) string {
	for _, route := range routes {
		if route.Name == name {
			return route.ID
		}
	}
	return name
}

// routes returns the running routes, or those about to start.
func (d *DeadLetters) routes() []*config.Route { return d.objects.Load().config.Routes }

// Renamed moves the series of dead letters of routes whose name differs from their name in the
// plan.
func (d *DeadLetters) Renamed(before *compile.Plan) {
	if d.store == nil {
		return
	}
	now := d.routes()
	renamed := slices.DeleteFunc(slices.Clone(before.Routes), func(p compile.Route) bool { return routeNameOf(now, p.ID) == p.Name })
	for _, p := range renamed {
		d.metrics.ForgetLetters(p.Name)
	}
	for _, p := range renamed {
		if n := d.Count(p.ID); n > 0 {
			d.metrics.DeadLetters.WithLabelValues(routeNameOf(now, p.ID)).Set(float64(n))
		}
	}
}

var errNoLetter = errors.New("there is no such dead letter")

// DeadLetters manages the dead letters of all routes: it bounds and counts them, and shows and
// retries them for the API. It is safe for concurrent use after Use was called.
type DeadLetters struct {
	objects *Current
	metrics *metrics.Metrics
	log     *slog.Logger

	store    *checkpoint.Letters // nil: the router keeps none
	pipeline *pipeline.Pipeline
	synced   func(source string) bool // also false if the source does not exist

	mu      sync.Mutex
	evicted map[string]int // by route id, see Evicted
}

// NewDeadLetters makes the dead letters of a router. There are none before Use.
func NewDeadLetters(objects *Current, m *metrics.Metrics, log *slog.Logger) *DeadLetters {
	return &DeadLetters{objects: objects, metrics: m, log: log, evicted: make(map[string]int)}
}

// Use sets the store of the dead letters and the pipeline for retries. synced reports whether the
// cache has all objects of a source.
func (d *DeadLetters) Use(store *checkpoint.Letters, p *pipeline.Pipeline, synced func(source string) bool) {
	d.store, d.pipeline, d.synced = store, p, synced
}

// Letters implements api.DeadLetters.
func (d *DeadLetters) Letters(ctx context.Context, route string, after uint64, limit int) ([]api.Letter, error) {
	var shown []api.Letter
	if route != "" {
		route = routeIDOf(d.routes(), route)
	}
	ids, err := d.page(ctx, route, after, limit)
	if err != nil {
		return nil, err
	}
	err = d.each(ctx, ids, func(letter checkpoint.Letter) {
		s := d.show(ctx, letter)
		s.Delta.Object, s.Delta.OldObject, s.Call = nil, nil, nil
		if s.Delta.Event != nil {
			s.Delta.Event.Data = nil
		}
		shown = append(shown, s)
	})
	return shown, err
}

// Letter implements api.DeadLetters.
func (d *DeadLetters) Letter(ctx context.Context, id uint64) (*api.Letter, error) {
	letters, err := d.store.Load([]uint64{id})
	if err != nil || len(letters) == 0 {
		return nil, err
	}
	if may, err := access.Has(ctx, rightTo(letters[0], true)); !may || err != nil {
		return nil, err
	}
	shown := d.show(ctx, letters[0])
	return &shown, nil
}

// each calls f with the existing dead letters among ids, loading a few at a time.
func (d *DeadLetters) each(ctx context.Context, ids []uint64, f func(checkpoint.Letter)) error {
	for chunk := range slices.Chunk(ids, lettersAtOnce) {
		letters, err := d.store.Load(chunk)
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

func (d *DeadLetters) show(ctx context.Context, l checkpoint.Letter) api.Letter {
	of, o := l.Delta, l.Delta.Object()
	shown := api.Letter{
		ID: l.ID, Time: l.Time.UTC(), Route: routeNameOf(d.routes(), l.Route), Sink: l.Sink, Error: l.Error, Attempts: l.Attempts,
		Delta: api.Delta{
			Op: of.Op.String(), Source: of.Source, Key: of.Key().String(), UID: o.UID(), ResourceVersion: o.ResourceVersion(),
			Initial: of.Initial, Stale: of.Stale, Redelivered: of.Redelivered, Object: o.JSON(),
		},
		Call: l.Call,
	}
	if of.New != nil && of.Old != nil {
		shown.Delta.OldObject = of.Old.JSON()
	}
	if e := of.Event; e != nil {
		shown.Delta.Event = &api.Event{ID: e.ID, Type: e.Type, Subject: e.Subject, Route: e.Route, Data: e.Data}
	}
	if access.From(ctx) != nil && !d.objects.Load().mayListSeen(ctx, shown.Route) {
		// A sink, a handler or an upstream route may have made them of other objects. The call may have
		// had other deltas, and looked objects up.
		shown.Call = nil
		if shown.Error = hidden; shown.Delta.Event != nil {
			shown.Delta.Event = &api.Event{Route: shown.Delta.Event.Route}
		}
	}
	return shown
}

// Count returns the number of dead letters of a route id.
func (d *DeadLetters) Count(id string) int { return len(d.store.IDs(id, 0, 0)) }

// Evicted returns the number of dead letters of a route id that newer ones have replaced since the
// start, because of their number or their share of the state folder.
func (d *DeadLetters) Evicted(id string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.evicted[id]
}

func (d *DeadLetters) evict(id string, n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.evicted[id] += n
}

func (d *DeadLetters) selected(which api.Selection) []uint64 {
	if which.Route != "" {
		return d.store.IDs(routeIDOf(d.routes(), which.Route), 0, 0)
	}
	ids := slices.Clone(which.IDs)
	slices.Sort(ids) // older dead letters first
	return slices.Compact(ids)
}

// Retry implements api.Changer.
func (d *DeadLetters) Retry(ctx context.Context, which api.Selection, current bool) (api.Outcome, error) {
	var outcome api.Outcome
	var gone []uint64
	ids, err := d.visible(ctx, d.selected(which), 0)
	if err != nil {
		return outcome, err
	}
	found := make(map[uint64]bool, len(ids))
	err = d.each(ctx, ids, func(letter checkpoint.Letter) {
		found[letter.ID] = true
		if current || identityOnly(letter.Delta) {
			there, err := d.refresh(&letter)
			if err != nil {
				outcome.Fail(letter.ID, err)
				return
			}
			if !there {
				gone = append(gone, letter.ID)
				d.log.Info("a dead letter is dropped: its object does not exist any more", "letter", letter.ID, "route", letter.Route,
					"delta", letter.Delta.String())
				return
			}
		}
		if err := d.pipeline.Redeliver(ctx, letter); err != nil {
			outcome.Fail(letter.ID, err)
			return
		}
		outcome.Done++
	})
	if err != nil {
		return outcome, err
	}
	d.missing(&outcome, which, found)
	if outcome.Gone, err = d.store.Remove(ctx, gone); err != nil {
		return outcome, err
	}
	d.log.Info("dead letters are delivered again", "letters", outcome.Done, "dropped", outcome.Gone, "failed", outcome.NotDone)
	return outcome, nil
}

// missing adds failures for selected dead letters that do not exist.
func (d *DeadLetters) missing(outcome *api.Outcome, which api.Selection, found map[uint64]bool) {
	for _, id := range which.IDs {
		if !found[id] {
			outcome.Fail(id, errNoLetter)
		}
	}
}

// Drop implements api.Changer.
func (d *DeadLetters) Drop(ctx context.Context, which api.Selection) (outcome api.Outcome, err error) {
	ids, err := d.visible(ctx, d.selected(which), 0)
	if err != nil {
		return outcome, err
	}
	all, there := d.store.IDs("", 0, 0), make(map[uint64]bool)
	slices.Sort(all)
	for _, id := range ids {
		_, there[id] = slices.BinarySearch(all, id)
	}
	if outcome.Done, err = d.store.Remove(ctx, ids); err != nil {
		return outcome, err
	}
	d.missing(&outcome, which, there)
	d.log.Info("dead letters were dropped by hand", "letters", outcome.Done)
	return outcome, nil
}

// identityOnly reports whether the dead letter has only the identity of an object that may still
// exist: it is a Secret, or was too large for the stream of a fleet and has no resourceVersion. The
// route then needs the present state of the object.
func identityOnly(d *event.Delta) bool {
	o := d.Object()
	r := o.Resource()
	return (r.Group == "" && r.Resource == "secrets" || o.ResourceVersion() == "") && !ended(d)
}

func ended(d *event.Delta) bool { return d.New == nil }

// refresh replaces the object of a dead letter by its present state, as an update. It returns false
// if the object does not exist any more. It leaves the dead letter of a delete unchanged in that
// case, and never changes the event of an upstream route. It returns an error if the cache cannot
// decide.
func (d *DeadLetters) refresh(letter *checkpoint.Letter) (there bool, err error) {
	was := letter.Delta
	if !d.synced(was.Source) {
		return false, fmt.Errorf("source %q is not configured any more or has not synced, so its objects are not known: see router status", was.Source)
	}
	key := was.Key()
	now := d.objects.Load().catalog.Get(was.Source, key.Namespace, key.Name)
	if now == nil || now.UID() != was.Object().UID() {
		return ended(was), nil
	}
	letter.Delta = &event.Delta{Source: was.Source, Op: event.Updated, Old: was.Old, New: now, Seen: time.Now(), Event: was.Event}
	return true, nil
}
