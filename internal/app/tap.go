package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/deltarouter/deltarouter/pkg/api"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/expr"
	"github.com/deltarouter/deltarouter/pkg/pipeline"
)

const (
	maxTaps    = 4
	tapBacklog = 64                    // deltas that wait to be shown
	tapPace    = 20 * time.Millisecond // between two deltas that are shown
)

// taps shows people what goes by. What is put through does not wait for them: a tap that has enough to show misses the rest.
type taps struct {
	mu     sync.Mutex
	active atomic.Pointer[[]*tap] // replaced as a whole; nil: none
}

// offered is a delta that goes by.
type offered struct {
	delta *event.Delta
	to    string // the route that others feed with it; empty: it comes from its source, for all routes
}

// tap is one of those who look on.
type tap struct {
	deltas chan offered
	missed atomic.Int64
	query  api.TapQuery
	wants  atomic.Pointer[[]string] // sources, what routes feed each other with aside; nil: all

	pipeline *pipeline.Pipeline // nil: nobody knows what holds

	// For the looker-on's goroutine.
	inventory  *inventory
	explainers map[[2]string]*expr.Explainer // by route and source
}

// offer shows a delta to whoever looks on, and never waits. to is the route that others feed with it, empty for one from its source.
func (t *taps) offer(d *event.Delta, to string) {
	if t == nil {
		return
	}
	active := t.active.Load()
	if active == nil {
		return
	}
	for _, one := range *active {
		switch wants := one.wants.Load(); {
		case to != "" && one.query.Route != "" && one.query.Route != to:
			continue
		case to == "" && wants != nil && !slices.Contains(*wants, d.Source):
			continue
		}
		select {
		case one.deltas <- offered{d, to}:
		default:
			one.missed.Add(1)
		}
	}
}

// given offers what a route gave to another.
func (t *taps) given(_ string, sink pipeline.NamedSink, events []event.Event) {
	if t.active.Load() == nil {
		return
	}
	for i := range events {
		t.offer(event.Feed(events[i].Of, &events[i]), sink.Feeds)
	}
}

// change adds a tap or removes it.
func (t *taps) change(edit func([]*tap) []*tap) {
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

// tap implements api.Tap. Each filter is evaluated once more, by the one who looks on, a moment after the route has done so: what is
// looked up may be another object's later state by then.
func (r *router) tap(ctx context.Context, q api.TapQuery, show func(api.Tapped) error) error {
	one := &tap{deltas: make(chan offered, tapBacklog), query: q, pipeline: r.pipeline}
	if err := one.prepare(r.objects.Load()); err != nil {
		return err
	}
	full := false
	r.taps.change(func(all []*tap) []*tap {
		if full = len(all) >= maxTaps; full {
			return all
		}
		return append(all, one)
	})
	if full {
		return fmt.Errorf("there are %d taps already: end one of them", maxTaps)
	}
	defer r.taps.change(func(all []*tap) []*tap { return slices.DeleteFunc(all, func(t *tap) bool { return t == one }) })
	if err := show(api.Tapped{}); err != nil {
		return err
	}
	for {
		select {
		case d := <-one.deltas:
			if err := pause(ctx, tapPace); err != nil { // the routes have it by then, unless one has no room
				return err
			}
			if err := one.prepare(r.objects.Load()); err != nil {
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

// pause waits; its error is that of ctx.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// prepare makes the tap see this configuration. The error says that it does not have the route.
func (t *tap) prepare(inv *inventory) error {
	if t.inventory == inv {
		return nil
	}
	t.inventory, t.explainers = inv, make(map[[2]string]*expr.Explainer)
	if t.query.Route == "" {
		return nil
	}
	var known []string
	for _, route := range inv.config.Routes {
		if known = append(known, route.Name); route.Name == t.query.Route {
			wants := route.From
			if len(route.FedBy) > 0 {
				wants = []string{}
			}
			t.wants.Store(&wants)
			return nil
		}
	}
	return unknown("there is no route %q%s", t.query.Route, config.Suggest(t.query.Route, known))
}

// show shows what the routes make of a delta.
func (t *tap) show(ctx context.Context, what offered, show func(api.Tapped) error) error {
	d := what.delta
	for _, route := range t.inventory.config.Routes {
		if t.query.Route != "" && t.query.Route != route.Name || !slices.Contains(route.From, d.Source) {
			continue
		}
		if fed := len(route.FedBy) > 0; fed && what.to != route.Name || !fed && what.to != "" {
			continue
		}
		o := d.Object()
		tapped := api.Tapped{
			Time: d.Seen.UTC(), Op: d.Op.String(), Source: d.Source, Key: d.Key().String(), UID: o.UID(),
			ResourceVersion: o.ResourceVersion(), Route: route.Name, Verdict: Matches,
		}
		if d.Event != nil {
			tapped.Event = d.Event.Type + " of " + d.Event.Route
		}
		if err := t.judge(ctx, route, d, &tapped); err != nil {
			return err
		}
		if (tapped.Verdict == MatchesNot || tapped.Verdict == HoldsNot) && !t.query.Rejected {
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

// since says what the route knows of the object, if it is one with a rule about time.
func (t *tap) since(route *config.Route, d *event.Delta, tapped *api.Tapped) {
	if t.pipeline == nil || route.When == nil && route.For == 0 || tapped.Verdict != Holds && tapped.Verdict != Matches {
		return
	}
	if h, ok := t.pipeline.Holds(route.Name, d.Source, d.Key()); ok {
		tapped.State, tapped.Since = h.State, h.Since.UTC()
		if !h.Due.IsZero() {
			tapped.Due = h.Due.UTC()
		}
	}
}

// judge finds out what a route makes of a delta.
func (t *tap) judge(ctx context.Context, route *config.Route, d *event.Delta, tapped *api.Tapped) error {
	switch {
	case route.When != nil && d.New == nil:
		tapped.Verdict, tapped.Why = HoldsNot, d.Op.String()
		return nil
	case route.When != nil:
		tapped.Verdict = Holds
		return t.ask(ctx, route, route.When.For(d.Source), expr.When, d, tapped)
	case !slices.Contains(route.On, d.Op.String()):
		tapped.Verdict, tapped.Why = MatchesNot, "on: "+strings.Join(route.On, ", ")
		return nil
	case d.Initial && len(route.FedBy) == 0 && route.Existing != config.ExistingDeliver:
		tapped.Verdict, tapped.Why = MatchesNot, "existing: "+route.Existing
		return nil
	case route.Filter == nil:
		return nil
	}
	return t.ask(ctx, route, route.Filter.For(d.Source), expr.Filter, d, tapped)
}

// ask asks a filter, or a condition.
func (t *tap) ask(ctx context.Context, route *config.Route, filter *config.Expr, usage expr.Usage, d *event.Delta, tapped *api.Tapped) error {
	key := [2]string{route.Name, d.Source}
	explainer := t.explainers[key]
	if explainer == nil {
		env, err := t.inventory.routes()
		if err == nil {
			explainer, err = env.Explain(filter.Text, usage, d.Source)
		}
		if err != nil {
			return fmt.Errorf("route %q: %w", route.Name, err)
		}
		t.explainers[key] = explainer
	}
	f, refused := explainer.Refusal(ctx, expr.Input{Delta: d, Cache: t.inventory.catalog})
	if !refused {
		return nil
	}
	at := *filter
	if define, ok := t.inventory.config.Define[f.Define]; ok {
		at = define
	}
	p := at.Problem(f.Line, f.Column, "")
	if tapped.Verdict = MatchesNot; usage == expr.When {
		tapped.Verdict = HoldsNot
	}
	tapped.Why, tapped.At = f.Text, fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
	if _, tapped.Reason = resultOf(false, f.Err, nil); f.Err != nil && !errors.Is(f.Err, expr.ErrAbsent) {
		tapped.Verdict = MatchFails
	}
	return nil
}
