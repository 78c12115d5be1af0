package compile

import (
	"maps"
	"slices"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/index"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// grants collects the look-up grants of the handlers, and reports those that do not exist or are
// not permitted.
func grants(cfg *config.Config, kinds []plugins.HandlerKind) (of map[string][]plugins.LookupGrant, problems config.Problems) {
	of = make(map[string][]plugins.LookupGrant)
	for _, name := range slices.Sorted(maps.Keys(cfg.Handlers)) {
		c := cfg.Handlers[name]
		kind, ok := KindOf(kinds, c.Kind).(plugins.LookupRequester)
		if !ok {
			continue
		}
		of[name] = kind.Lookups(c.Config)
		for _, g := range of[name] {
			if p := checkGrant(cfg, g, of[name]); p != nil {
				problems = append(problems, *p)
			}
		}
	}
	return of, problems
}

// keeps reports whether a handler of this configuration stores values.
func keeps(c *config.Component, kinds []plugins.HandlerKind) bool {
	if c == nil {
		return false
	}
	kind, ok := KindOf(kinds, c.Kind).(plugins.Rememberer)
	return ok && kind.Remembers(c.Config)
}

// checkGrant returns the problem of a handler's grant, or nil.
func checkGrant(cfg *config.Config, g plugins.LookupGrant, all []plugins.LookupGrant) *config.Problem {
	problem := func(format string, args ...any) *config.Problem {
		p := g.Node.Problemf(format, args...)
		return &p
	}
	source := cfg.Sources[g.Source]
	if source == nil {
		return problem("unknown source %q%s", g.Source, config.Suggest(g.Source, slices.Sorted(maps.Keys(cfg.Sources))))
	}
	indexes := append(index.Builtins(), slices.Sorted(maps.Keys(source.Indexes))...)
	if g.Index != "" && !slices.Contains(indexes, g.Index) {
		return problem("source %q has no index %q%s", g.Source, g.Index, config.Suggest(g.Index, indexes))
	}
	if source.Cache == config.CacheIdentity {
		return problem("source %q caches identities only; give it cache: full or cache: metadata", g.Source)
	}
	if source.Resource != "v1/secrets" {
		return nil
	}
	whole := func(other plugins.LookupGrant) bool { return other.Source == g.Source && other.Index == "" }
	switch {
	case !slices.ContainsFunc(all, whole):
		return problem("source %q has Secrets: an index of it needs a grant of the source itself; add %q", g.Source, g.Source)
	case !source.Secrets:
		return problem("source %q has Secrets without their data; give it secrets: true if the handler may see them", g.Source)
	}
	return nil
}

// SourcesOf returns the sources of grants.
func SourcesOf(grants []plugins.LookupGrant) []string {
	var names []string
	for _, g := range grants {
		names = append(names, g.Source)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Only the identity of a Secret may reach the disk. Results of expressions and handlers could
// contain more: a key of a limit, a stored value, the reason in a dead letter. So routes that see
// Secrets (Route.SecretSources) have hashed keys, handlers whose values stay in memory, and dead
// letters without a reason, see spec.Settings.

// SeeSecrets returns the instances of handlers of the routes that see Secrets.
func (p *Plan) SeeSecrets() (handlers []string) {
	for i := range p.Routes {
		if r := &p.Routes[i]; r.Handler != "" && len(r.SecretSources) > 0 {
			handlers = append(handlers, r.Instance)
		}
	}
	return handlers
}

// secretsOf returns the sources of Secrets from which a route makes its events. They are its own
// sources of Secrets, even without secret data, since pending deltas of them are written with the
// identity only; and the sources with secret data that it looks objects up in. Sources of upstream
// routes are reported for these.
func (c *compiler) secretsOf(r *Route) (sources []string) {
	for _, source := range r.From {
		if s := c.cfg.Sources[source]; s != nil && s.Resource == "v1/secrets" && len(r.Upstream) == 0 {
			sources = append(sources, source)
		}
	}
	for _, source := range r.Lookups() {
		if s := c.main.Sources[source]; s != nil && s.Secrets && !slices.Contains(r.From, source) {
			sources = append(sources, source)
		}
	}
	return sources
}

// passSecrets marks the routes that get events of a route that sees Secrets.
func passSecrets(routes []Route) {
	gets := func(r *Route) bool {
		return len(r.Upstream) > 0 && slices.ContainsFunc(routes, func(up Route) bool { return up.Secret && slices.Contains(r.Upstream, up.Name) })
	}
	for again := true; again; {
		again = false
		for i := range routes {
			if r := &routes[i]; !r.Secret && gets(r) {
				r.Secret, again = true, true
			}
		}
	}
}

// adviseSecrets warns of values that are not written to disk because they may contain secret data.
func (c *compiler) adviseSecrets(p *Plan, keeps func(handler string) bool) {
	for i := range p.Routes {
		r := &p.Routes[i]
		if len(r.SecretSources) > 0 && keeps(r.Handler) {
			c.warnf(r.Node.At("handler").Problemf("handler %q stores values (allow: {kv: true}), and this route gives it Secrets (source %q), which are "+
				"never written to disk: its values stay in memory only, and are lost in a restart", r.Handler, r.SecretSources[0]))
		}
	}
}
