package simulate

import (
	"maps"
	"slices"

	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
)

// only returns the configuration with the named routes and those whose events they get. Other
// routes can neither fail a trial nor keep it waiting. Without names it returns all of it.
func (o *Offline) only(names []string) *Offline {
	if len(names) == 0 {
		return o
	}
	wanted := make(map[string]bool)
	for len(names) > 0 {
		var upstream []string
		for i := range o.plan.Routes {
			if r := &o.plan.Routes[i]; slices.Contains(names, r.Name) && !wanted[r.Name] {
				wanted[r.Name] = true
				upstream = append(upstream, r.Upstream...)
			}
		}
		names = upstream
	}
	plan, cfg := *o.plan, *o.plan.Config
	plan.Config, plan.Routes = &cfg, nil
	cfg.Handlers = maps.Clone(cfg.Handlers)
	for _, r := range o.plan.Routes {
		if wanted[r.Name] {
			plan.Routes = append(plan.Routes, r)
		} else {
			delete(cfg.Handlers, r.Handler)
		}
	}
	for i := range plan.Routes {
		if name := plan.Routes[i].Handler; name != "" {
			cfg.Handlers[name] = o.plan.Config.Handlers[name]
		}
	}
	return &Offline{&plan, o.env}
}

// replaceMissing has the recorder take the events for routes that do not run.
func (r *recorder) replaceMissing(routes []spec.Settings) {
	for i := range routes {
		sinks := routes[i].Sinks
		for k := range sinks {
			to := &sinks[k]
			if to.Route != "" && !slices.ContainsFunc(routes, func(r spec.Settings) bool { return r.Name == to.Route }) {
				to.Route, to.Sink = "", recordingSink{r, to.Name, nil}
			}
		}
	}
}
