package spec

import (
	"fmt"
	"strings"
)

// Check returns an error that names a route that cannot work: it has no target or too many, its
// target is no downstream route, or it delivers to itself through other routes.
func Check(routes []Settings) error {
	byName := make(map[string]*Settings, len(routes))
	for i := range routes {
		byName[routes[i].Name] = &routes[i]
	}
	// Each route alone, then its targets, then the circles that these may form.
	for i := range routes {
		r := &routes[i]
		if err := r.check(); err != nil {
			return err
		}
		if r.Downstream && (r.When.Filter != nil || r.Hold > 0) {
			return fmt.Errorf("route %q has upstream routes and a condition (when, for): give the condition to the upstream routes", r.Name)
		}
		for _, s := range r.Sinks {
			if s.Route == "" {
				continue
			}
			if next := byName[s.Route]; next == nil || !next.Downstream {
				return fmt.Errorf("route %q delivers to route %q, which does not exist or gets its deltas from sources: name a downstream route", r.Name, s.Route)
			}
		}
		if chain := r.circle(byName, nil, map[string]bool{}); chain != nil {
			return fmt.Errorf("route %q delivers to itself (%s): remove one of these routes from the sinks", r.Name, strings.Join(chain, " → "))
		}
	}
	return nil
}

// circle returns the names of the routes on a cycle back to the first of way, which is the path so
// far; nil: there is none. passed are the routes already visited.
func (s *Settings) circle(byName map[string]*Settings, way []string, passed map[string]bool) []string {
	way = append(way[:len(way):len(way)], s.Name)
	if len(way) > 1 && s.Name == way[0] {
		return way
	}
	if passed[s.Name] {
		return nil // a cycle without the first route is found from its own members
	}
	passed[s.Name] = true
	for _, sink := range s.Sinks {
		if next := byName[sink.Route]; sink.Route != "" && next != nil {
			if found := next.circle(byName, way, passed); found != nil {
				return found
			}
		}
	}
	return nil
}
