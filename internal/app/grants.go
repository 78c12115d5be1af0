package app

import (
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/index"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// grants collects what the handlers may look up, and finds what there is not, or may not be seen.
func grants(cfg *config.Config, factories []plugins.Factory[plugins.Handler]) (of map[string][]plugins.LookupGrant, problems config.Problems) {
	of = make(map[string][]plugins.LookupGrant)
	for _, name := range slices.Sorted(maps.Keys(cfg.Handlers)) {
		c := cfg.Handlers[name]
		f := factoryOf(factories, c.Kind)
		if f == nil || f.Lookups == nil {
			continue
		}
		of[name] = f.Lookups(c.Config)
		for _, g := range of[name] {
			if p := checkGrant(cfg, g, of[name]); p != nil {
				problems = append(problems, *p)
			}
		}
	}
	return of, problems
}

// checkGrant returns what is wrong with one of the grants of a handler; nil: nothing is.
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
		return problem("source %q keeps identities only; give it cache: full or cache: metadata", g.Source)
	}
	if source.Resource != "v1/secrets" {
		return nil
	}
	whole := func(other plugins.LookupGrant) bool { return other.Source == g.Source && other.Index == "" }
	switch {
	case !slices.ContainsFunc(all, whole):
		return problem("source %q has Secrets: an index of it is granted only beside the source itself; add %q", g.Source, g.Source)
	case !source.Secrets:
		return problem("source %q has Secrets without their data; give it secrets: true if the handler may see them", g.Source)
	}
	return nil
}

// sourcesOf returns the sources of grants.
func sourcesOf(grants []plugins.LookupGrant) []string {
	var names []string
	for _, g := range grants {
		names = append(names, g.Source)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// view is what a handler sees of the caches. A reload exchanges what it shows while the handler goes on.
type view struct{ now atomic.Pointer[index.Catalog] }

var _ plugins.Lookup = (*view)(nil)

// Lookup implements plugins.Lookup.
func (v *view) Lookup(source, index, value string) []*event.Object {
	if c := v.now.Load(); c != nil {
		return c.Lookup(source, index, value)
	}
	return nil
}

// Count implements plugins.Lookup.
func (v *view) Count(source, index, value string) int {
	if c := v.now.Load(); c != nil {
		return c.Count(source, index, value)
	}
	return 0
}

// Get implements plugins.Lookup.
func (v *view) Get(source, namespace, name string) *event.Object {
	if c := v.now.Load(); c != nil {
		return c.Get(source, namespace, name)
	}
	return nil
}

// fillView lets a handler see what it was granted, once the routes are exchanged.
func (r *router) fillView(handler string) {
	sources := sourcesOf(r.plan.grants[handler])
	if len(sources) == 0 {
		return
	}
	shown := r.handlers[handler].view
	r.fill = append(r.fill, func() {
		catalog := index.NewCatalog()
		r.fillCatalog(catalog, sources)
		shown.now.Store(catalog)
	})
}

// hostPort returns host:port of a URL; empty if it is none.
func hostPort(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" {
		return ""
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}
