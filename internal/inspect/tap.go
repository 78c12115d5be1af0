package inspect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/deltarouter/deltarouter/internal/api"
	"github.com/deltarouter/deltarouter/internal/cel"
	conjuncts "github.com/deltarouter/deltarouter/internal/cel/explain"
	"github.com/deltarouter/deltarouter/internal/explain"
	"github.com/deltarouter/deltarouter/internal/pipeline"
	"github.com/deltarouter/deltarouter/internal/pipeline/chain"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/index"
)

const (
	maxTaps    = 4
	tapsOfUser = 2
	tapBacklog = 64                    // deltas waiting to be shown
	tapPace    = 20 * time.Millisecond // between two shown deltas
)

// Taps are the live views of deltas. The flow of deltas does not wait for them: a tap that is full
// misses deltas.
type Taps struct {
	objects *Current
	places  *places

	mu     sync.Mutex
	active atomic.Pointer[[]*tap] // replaced as a whole; nil: no tap
}

// item is a delta for a tap.
type item struct {
	delta *event.Delta
	// the downstream route of an event; empty: the delta comes from its source and goes to all
	// routes
	to string
	// onlyRoute is the only route that gets the delta, whatever its ops are: because of watches, a
	// resync, or an outcome in that route. Empty: all routes.
	onlyRoute string
	isOutcome bool // see tap.outcomes
}

// outcome identifies the result of a delta in a route.
type outcome struct {
	route string
	delta *event.Delta
}

// tap is one live view.
type tap struct {
	deltas chan item
	missed atomic.Int64
	query  api.TapQuery
	wants  atomic.Pointer[[]string] // sources, except for events of upstream routes; nil: all

	pipeline *pipeline.Pipeline // nil: states of conditions are unknown

	mu sync.Mutex
	// results that are still to be shown: true for suppressed, false for given up. Each has an
	// item
	outcomes map[outcome]bool

	// The rest is used by the goroutine of the tap only.
	inventory  *Inventory
	explainers map[[2]string]explainer // by route and source
}

// NewTaps makes the taps of a router. At first there is none.
func NewTaps(objects *Current) *Taps {
	return &Taps{objects: objects, places: newPlaces(maxTaps, tapsOfUser)}
}

// Offer offers a delta of a source to the taps. It never blocks.
func (t *Taps) Offer(d *event.Delta) { t.offer(item{delta: d}) }

// OfferThrough offers a delta that goes through one route only. It never blocks.
func (t *Taps) OfferThrough(d *event.Delta, route string) { t.offer(item{delta: d, onlyRoute: route}) }

func (t *Taps) offer(what item) {
	if t == nil {
		return
	}
	active := t.active.Load()
	if active == nil {
		return
	}
	for _, one := range *active {
		if one.wantsTo(what) {
			one.offer(what)
		}
	}
}

func (t *tap) wantsTo(what item) bool {
	switch wants := t.wants.Load(); {
	case what.to != "":
		return t.query.Route == "" || t.query.Route == what.to
	case what.onlyRoute != "":
		return t.query.Route == "" || t.query.Route == what.onlyRoute
	default:
		return wants == nil || slices.Contains(*wants, what.delta.Source)
	}
}

func (t *tap) offer(what item) (taken bool) {
	select {
	case t.deltas <- what:
		return true
	default:
		t.missed.Add(1)
		return false
	}
}

// Refused records that a delta was suppressed or given up. The line of the delta shows it if it was
// not written yet; else it gets another line.
func (t *Taps) Refused(route string, d *event.Delta, suppressed bool) {
	active := t.active.Load()
	if active == nil {
		return
	}
	for _, one := range *active {
		what := item{delta: d, onlyRoute: route, isOutcome: true}
		if !one.wantsTo(what) {
			continue
		}
		one.mu.Lock()
		if one.offer(what) {
			if one.outcomes == nil {
				one.outcomes = make(map[outcome]bool)
			}
			one.outcomes[outcome{route, d}] = suppressed
		}
		one.mu.Unlock()
	}
}

func (t *tap) forget(key outcome) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.outcomes, key)
}

// became sets the verdict of a delta that was suppressed or given up, unless it was shown before.
func (t *tap) became(route string, d *event.Delta, tapped *api.Tapped) (known bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := outcome{route, d}
	suppressed, known := t.outcomes[key]
	delete(t.outcomes, key)
	switch {
	case !known:
	case suppressed:
		tapped.Verdict, tapped.Reason = explain.Suppressed, "by the route's limit"
	default:
		tapped.Verdict, tapped.Reason = explain.GivenUp, "see the log and router dlq for the reason"
	}
	return known
}

// Passed offers the events that an upstream route passed to a downstream route.
func (t *Taps) Passed(_ string, sink spec.NamedSink, events []event.Event) {
	if t.active.Load() == nil {
		return
	}
	for i := range events {
		t.offer(item{delta: chain.Delta(events[i].Of, &events[i]), to: sink.Route})
	}
}

// change replaces the list of taps.
func (t *Taps) change(edit func([]*tap) []*tap) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []*tap
	if now := t.active.Load(); now != nil {
		all = slices.Clone(*now)
	}
	if all = edit(all); len(all) == 0 {
		t.active.Store(nil)
		return
	}
	t.active.Store(&all)
}

// Show runs one tap until ctx is done; p may be nil in tests. The tap evaluates each filter again,
// a moment after the route. Its look-ups may see a later state of other objects.
func (t *Taps) Show(ctx context.Context, p *pipeline.Pipeline, q api.TapQuery, show func(api.Tapped) error) error {
	one := &tap{deltas: make(chan item, tapBacklog), query: q, pipeline: p}
	if err := one.prepare(ctx, t.objects.Load()); err != nil {
		return err
	}
	leave, err := t.places.try(ctx, "taps")
	if err != nil {
		return err
	}
	defer leave()
	t.change(func(all []*tap) []*tap { return append(all, one) })
	defer t.change(func(all []*tap) []*tap { return slices.DeleteFunc(all, func(other *tap) bool { return other == one }) })
	if err := show(api.Tapped{}); err != nil {
		return err
	}
	for {
		select {
		case d := <-one.deltas:
			// By then the routes have the delta, unless one is full.
			if err := timer.Sleep(ctx, tapPace); err != nil {
				return err
			}
			if err := one.prepare(ctx, t.objects.Load()); err != nil {
				return err
			}
			if err := one.show(ctx, d, show); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// prepare switches the tap to a configuration. It fails if the configuration does not have the
// route, or if the caller may not watch the objects that the tap shows.
func (t *tap) prepare(ctx context.Context, inv *Inventory) error {
	if t.inventory == inv {
		return nil
	}
	if err := inv.checkSeen(ctx, "watch", t.query.Route); err != nil {
		return err
	}
	t.inventory, t.explainers = inv, make(map[[2]string]explainer)
	if t.query.Route == "" {
		return nil
	}
	var known []string
	for _, route := range inv.config.Routes {
		if known = append(known, route.Name); route.Name == t.query.Route {
			wants := route.From
			if len(route.Upstream) > 0 {
				wants = []string{}
			}
			t.wants.Store(&wants)
			return nil
		}
	}
	return unknown("there is no route %q%s", t.query.Route, config.Suggest(t.query.Route, known))
}

// meant reports whether the delta was offered to the route: an event of an upstream route, and a
// repeated delta, are for one route only.
func (o *item) meant(route *config.Route) bool {
	if o.onlyRoute != "" {
		return o.onlyRoute == route.Name
	}
	if len(route.Upstream) > 0 {
		return o.to == route.Name
	}
	return o.to == ""
}

// tappedOf returns the line of a delta before the decision of the route.
func tappedOf(d *event.Delta, route *config.Route) api.Tapped {
	o := d.Object()
	tapped := api.Tapped{
		Time: d.Seen.UTC(), Op: d.Op.String(), Source: d.Source, Key: d.Key().String(), UID: o.UID(),
		ResourceVersion: o.ResourceVersion(), Route: route.Name, Verdict: explain.Matches,
	}
	if d.Event != nil {
		tapped.Event = d.Event.Type + " of " + d.Event.Route
	}
	return tapped
}

// show shows the decisions of the routes about a delta.
func (t *tap) show(ctx context.Context, what item, show func(api.Tapped) error) error {
	d := what.delta
	if what.isOutcome {
		defer t.forget(outcome{what.onlyRoute, d}) // also if the route does not exist any more
	}
	for _, route := range t.inventory.config.Routes {
		if t.query.Route != "" && t.query.Route != route.Name || !slices.Contains(route.From, d.Source) || !what.meant(route) {
			continue
		}
		tapped := tappedOf(d, route)
		if known := t.became(route.Name, d, &tapped); what.isOutcome && !known {
			continue // it was shown already
		} else if !known {
			if err := t.judge(ctx, route, what, &tapped); err != nil {
				return err
			}
		}
		if (tapped.Verdict == explain.MatchesNot || tapped.Verdict == explain.HoldsNot) && !t.query.Rejected {
			continue
		}
		t.since(route, d, &tapped)
		tapped.Missed = t.missed.Swap(0)
		if err := show(tapped); err != nil {
			return err
		}
	}
	return nil
}

// since adds the state of the object in a route with a rule about time.
func (t *tap) since(route *config.Route, d *event.Delta, tapped *api.Tapped) {
	if t.pipeline == nil || route.When == nil && route.For == 0 || tapped.Verdict != explain.Holds && tapped.Verdict != explain.Matches {
		return
	}
	if h, ok := t.pipeline.Holds(route.Name, d.Source, d.Key()); ok {
		tapped.State, tapped.Since = h.State, h.Since.UTC()
		if !h.Due.IsZero() {
			tapped.Due = h.Due.UTC()
		}
	}
}

// explainer explains the filter of a route for a source.
type explainer struct {
	conjuncts *conjuncts.Explainer
	config    *config.Config // with the defines of the route
	catalog   *index.Catalog // with the objects that it sees
}

// judge determines the decision of a route about a delta.
func (t *tap) judge(ctx context.Context, route *config.Route, what item, tapped *api.Tapped) error {
	d := what.delta
	switch scope := route.Scope(); {
	case !scope.Sees(d.Object().Home()):
		tapped.Verdict, tapped.Why = explain.MatchesNot, "the include sees only the namespaces "+strings.Join(scope.Namespaces, ", ")
		return nil
	case route.When != nil && d.New == nil:
		tapped.Verdict, tapped.Why = explain.HoldsNot, d.Op.String()
		return nil
	case route.When != nil:
		tapped.Verdict = explain.Holds
		return t.ask(ctx, route, route.When.For(d.Source), cel.When, d, tapped)
	case what.onlyRoute == "" && !slices.Contains(route.Ops, d.Op.String()):
		tapped.Verdict, tapped.Why = explain.MatchesNot, "ops: "+strings.Join(route.Ops, ", ")
		return nil
	case d.Initial && len(route.Upstream) == 0 && route.Existing != config.ExistingDeliver:
		tapped.Verdict, tapped.Why = explain.MatchesNot, "existing: "+route.Existing
		return nil
	case route.Filter == nil:
		return nil
	}
	return t.ask(ctx, route, route.Filter.For(d.Source), cel.Filter, d, tapped)
}

// ask evaluates a filter or a condition.
func (t *tap) ask(ctx context.Context, route *config.Route, filter *config.Expr, usage cel.Usage, d *event.Delta, tapped *api.Tapped) error {
	key := [2]string{route.Name, d.Source}
	by, known := t.explainers[key]
	if !known {
		env, err := t.inventory.routes()
		by = explainer{config: t.inventory.config, catalog: t.inventory.catalog}
		if of, ok := t.inventory.scoped[route.Name]; ok {
			env, err = of.env()
			by = explainer{config: of.config, catalog: of.catalog()}
		}
		if err == nil {
			by.conjuncts, err = conjuncts.New(env, filter.Text, usage, d.Source)
		}
		if err != nil {
			return fmt.Errorf("route %q: %w", route.Name, err)
		}
		t.explainers[key] = by
	}
	f, refused := by.conjuncts.Refusal(ctx, cel.Input{Delta: d, Cache: by.catalog})
	if !refused {
		return nil
	}
	at := *filter
	if define, ok := by.config.Define[f.Define]; ok {
		at = define
	}
	p := at.Problem(f.Line, f.Column, "")
	if tapped.Verdict = explain.MatchesNot; usage == cel.When {
		tapped.Verdict = explain.HoldsNot
	}
	tapped.Why, tapped.At = f.Text, fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
	if _, tapped.Reason = explain.ResultOf(false, f.Err, nil); f.Err != nil && !errors.Is(f.Err, cel.ErrAbsent) {
		tapped.Verdict = explain.MatchFails
	}
	return nil
}
