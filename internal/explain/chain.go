package explain

import (
	"context"

	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/internal/pipeline/chain"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// explained is the result for one route.
type explained struct {
	all    []RouteExplanation // for a downstream route: one for each event
	events []*event.Event     // the events that the route makes of the delta
	// unknown is the reason why the events are unknown; empty: they are known. result is the result
	// of a [Test] in that case.
	unknown, result string
}

// allRoutes explains all routes in the order of the configuration. Downstream routes are explained
// with the events of their upstream routes.
func (o *offline) allRoutes(ctx context.Context, d *event.Delta) (all []RouteExplanation, err error) {
	w := walk{o, make(map[string]*config.Route, len(o.cfg.Routes)), make(map[string]*explained, len(o.cfg.Routes))}
	for _, route := range o.cfg.Routes {
		w.routes[route.Name] = route
	}
	for _, route := range o.cfg.Routes {
		if err := w.chain(ctx, route, d); err != nil {
			return nil, err
		}
	}
	for _, route := range o.cfg.Routes {
		all = append(all, w.known[route.Name].all...)
	}
	return all, nil
}

// walk explains the routes, each once.
type walk struct {
	*offline

	routes map[string]*config.Route // by name
	known  map[string]*explained    // by route
}

// chain explains a route after its upstream routes. There are no cycles.
func (o *walk) chain(ctx context.Context, route *config.Route, d *event.Delta) error {
	if o.known[route.Name] != nil {
		return nil
	}
	found := &explained{}
	o.known[route.Name] = found
	if len(route.Upstream) == 0 {
		e, err := o.route(ctx, route, d)
		if err != nil {
			return err
		}
		found.all = []RouteExplanation{e}
		return o.makes(ctx, route, d, e, found)
	}
	none := RouteExplanation{Route: route.Name, Verdict: MatchesNot} // used if there is no event
	for _, upstream := range route.Upstream {
		if err := o.chain(ctx, o.routes[upstream], d); err != nil {
			return err
		}
		by := o.known[upstream]
		for _, event := range by.events {
			input := *d
			input.Event = event
			e, err := o.route(ctx, route, &input)
			if err == nil {
				found.all = append(found.all, e)
				err = o.makes(ctx, route, &input, e, found)
			}
			if err != nil {
				return err
			}
		}
		none.upstream(upstream, by)
	}
	if len(found.all) == 0 {
		if found.all = append(found.all, none); none.Verdict == MatchUnknown {
			found.unknown, found.result = "its input is unknown", Unknown
		}
	}
	return nil
}

// upstream adds the test that an upstream route made no event, or that its events are unknown.
func (e *RouteExplanation) upstream(name string, by *explained) {
	t := Test{What: "upstream", Text: name, Result: No}
	if by.unknown != "" {
		t.Result, t.Reason, e.Verdict = by.result, by.unknown, MatchUnknown
	}
	e.Tests = append(e.Tests, t)
}

// makes determines the events that a route makes of an explained delta, if that is possible without
// running it.
func (o *offline) makes(ctx context.Context, route *config.Route, d *event.Delta, e RouteExplanation, found *explained) error {
	o, err := o.within(route.Fragment)
	if err != nil {
		return err
	}
	unknown := func(reason string) { found.unknown, found.result = reason, Unknown }
	switch {
	case e.Verdict == MatchesNot || e.Verdict == HoldsNot && route.When == nil:
		return nil
	case route.When != nil:
		unknown("it reports the begin and the end of its condition")
		return nil
	case e.Verdict != Matches:
		unknown("it is unknown whether it matches")
		return nil
	case route.Handler != "":
		unknown("handler " + route.Handler + " makes its events")
		return nil
	case route.Batch.By != nil:
		unknown("its events are made of all deltas of a group")
		return nil
	}
	if route.Emit == nil {
		return o.plain(ctx, route, d, found)
	}
	program, err := o.env.Compile(route.Emit.Text, cel.Emit, route.From...)
	if err != nil {
		return compile.ProblemsOf(o.cfg, route.Emit, route.From, err)
	}
	made, err := program.Emit(ctx, o.look(ctx, d))
	if err != nil {
		result, reason := ResultOf(false, err, program.Sources())
		found.unknown, found.result = "its emit: "+reason, result
		return nil
	}
	for i, m := range made {
		one := event.New(d, route.Name, i, m.Data)
		if m.Type != "" {
			one.Type = m.Type
		}
		if m.Subject != "" {
			one.Subject = m.Subject
		}
		found.events = append(found.events, &one)
	}
	return nil
}

// plain adds the event of a route without a handler.
func (o *offline) plain(ctx context.Context, route *config.Route, d *event.Delta, found *explained) error {
	programs, err := o.withOf(route)
	if err != nil {
		return err
	}
	extended := *d
	if len(programs) > 0 {
		if extended.With, err = cel.With(ctx, programs, o.look(ctx, d)); err != nil {
			found.unknown, found.result = "its with: "+err.Error(), Unknown
			return nil
		}
	}
	one := chain.Event(&extended, route.Name)
	found.events = append(found.events, &one)
	return nil
}
