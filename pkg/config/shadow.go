package config

// checkShadow checks that the routes with shadow can be held back whole.
func (c *Config) checkShadow() (problems Problems) {
	for _, r := range c.Routes {
		if r == nil || !r.Shadow {
			continue
		}
		at := r.Node.At("shadow")
		if r.Workers != nil {
			problems = append(problems, at.Problemf("does not go with workers, which deliver the events of the route: remove one of them"))
		}
		h := c.Handlers[r.Handler]
		if h == nil && c.main != nil { // an include or an object grants it
			h = c.main.Handlers[r.Handler]
		}
		if h != nil && !h.Config.At("allow").At("http").IsZero() {
			problems = append(problems, at.Problemf("holds back the events of the route, but not the requests that handler %q may send (allow.http): use a handler without them", r.Handler))
		}
	}
	return problems
}
