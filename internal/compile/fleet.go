package compile

import (
	"slices"

	"github.com/deltarouter/deltarouter/pkg/config"
)

// checkWorkers reports handlers of routes that cannot run on workers: those that look up Secrets,
// and those with values that also run at the leader, because their values would be in two places.
// others are the routes before them.
func checkWorkers(c *compiler, routes, others []Route) (problems config.Problems) {
	for i := range routes {
		r := &routes[i]
		if r.Handler == "" {
			continue
		}
		if r.Workers != nil {
			for _, name := range SourcesOf(r.HandlerGrants) {
				if source := c.main.Sources[name]; source != nil && source.Resource == "v1/secrets" {
					problems = append(problems, r.Workers.Node.Problemf("handler %q looks up Secrets (source %q), which do not leave the leader: remove workers, or the look-up", r.Handler, name))
				}
			}
		}
		if !keeps(c.main.Handlers[r.Handler], c.handlers) {
			continue
		}
		elsewhere := func(other Route) bool {
			return other.Instance == r.Instance && (other.Workers == nil) != (r.Workers == nil)
		}
		all := others
		if r.Workers != nil {
			all = slices.Concat(others, routes)
		}
		if k := slices.IndexFunc(all, elsewhere); k >= 0 {
			problems = append(problems, separate(r, &all[k]))
		}
	}
	return problems
}

// separate reports that only one of two routes with a handler has workers.
func separate(r, other *Route) config.Problem {
	const format = "handler %q stores values (kv), and route %q %s workers uses it, too: the values of the leader and of the workers are separate; give the routes handlers of their own, or both workers"
	if r.Workers == nil {
		return r.Node.At("handler").Problemf(format, r.Handler, other.Name, "with")
	}
	return r.Workers.Node.Problemf(format, r.Handler, other.Name, "without")
}

// adviseWorkers warns that a limit of a route with workers counts before the handler. The route has
// no problems.
func adviseWorkers(r *config.Route) (warnings config.Problems) {
	if r.Workers == nil || r.Limit == nil || r.Handler == "" {
		return nil
	}
	return config.Problems{r.Node.At("limit").Problemf("the leader counts each delta that it gives to the workers, also one for which the handler makes no event or fails: " +
		"remove workers to count events only, or write # check: ok here")}
}
