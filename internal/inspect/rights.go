package inspect

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/deltarouter/deltarouter/internal/access"
	"github.com/deltarouter/deltarouter/internal/api"
	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/pkg/authz"
	"github.com/deltarouter/deltarouter/pkg/config"
)

// everything is the right to list all objects of a cluster. It is asked for where the sources of a
// text are not known any more.
var everything = authz.Right{Verb: "list", Group: "*", Resource: "*"}

// listSources is the right to see the names and the resources of all sources.
var listSources = authz.Right{Verb: "get", Path: "/deltarouter/v1/sources"}

// seenBy returns, by route, the sources whose objects the route may show in its results: its own,
// those of its look-ups and of its watches, and those of its upstream routes.
func seenBy(p *compile.Plan) map[string][]string {
	direct, upstream := make(map[string][]string), make(map[string][]string)
	for i := range p.Routes {
		r := &p.Routes[i]
		direct[r.Name], upstream[r.Name] = slices.Concat(r.From, r.Lookups()), r.Upstream
		for source, program := range r.WatchPrograms {
			direct[r.Name] = append(append(direct[r.Name], source), program.Sources()...)
		}
	}
	seen := make(map[string][]string)
	for name := range direct {
		routes := []string{name}
		var sources []string
		for i := 0; i < len(routes); i++ {
			sources = append(sources, direct[routes[i]]...)
			for _, up := range upstream[routes[i]] {
				if !slices.Contains(routes, up) {
					routes = append(routes, up)
				}
			}
		}
		slices.Sort(sources)
		seen[name] = slices.Compact(sources)
	}
	return seen
}

// rights returns the rights that kubectl would need for objects of a source. An empty namespace
// means all namespaces of the source.
func (inv *Inventory) rights(verb, source, namespace, name string) (all []authz.Right) {
	of := inv.config.Sources[source]
	if of == nil {
		return []authz.Right{everything}
	}
	group, _, resource, err := config.ParseResource(of.Resource)
	if err != nil {
		return []authz.Right{everything}
	}
	if name != "" && verb == "list" {
		verb = "get"
	}
	namespaces := []string{namespace}
	if namespace == "" && len(of.Namespaces) > 0 {
		namespaces = of.Namespaces
	}
	for _, n := range namespaces {
		all = append(all, authz.Right{Verb: verb, Group: group, Resource: resource, Namespace: n, Name: name})
	}
	return all
}

// rightsToAll returns the rights on all objects of some sources.
func (inv *Inventory) rightsToAll(verb string, sources []string) (all []authz.Right) {
	for _, source := range sources {
		all = append(all, inv.rights(verb, source, "", "")...)
	}
	return all
}

// rightsToSeen returns the rights on all objects that a route sees. An empty route means all
// routes.
func (inv *Inventory) rightsToSeen(verb, route string) []authz.Right {
	if route == "" {
		return inv.rightsToAll(verb, slices.Sorted(maps.Keys(inv.config.Sources)))
	}
	seen, ok := inv.seen[route]
	if !ok {
		return []authz.Right{everything}
	}
	return inv.rightsToAll(verb, seen)
}

// checkSeen returns an error unless the caller has the rights on all objects that a route sees. The
// sender of a request about routes may know their names, so an unknown route has its own error.
func (inv *Inventory) checkSeen(ctx context.Context, verb, route string) error {
	if _, ok := inv.seen[route]; !ok && route != "" {
		return nil // the request fails, because there is no such route
	}
	return access.Check(ctx, inv.rightsToSeen(verb, route)...)
}

// mayList reports whether the caller may list all objects of a source. It does not, if the API
// server gives no answer.
func (inv *Inventory) mayList(ctx context.Context, source string) bool {
	has, err := access.Has(ctx, inv.rights("list", source, "", "")...)
	return has && err == nil
}

// mayListSeen reports the same for the objects that a route sees.
func (inv *Inventory) mayListSeen(ctx context.Context, route string) bool {
	has, err := access.Has(ctx, inv.rightsToSeen("list", route)...)
	return has && err == nil
}

// mayRead returns an error unless the caller has the rights on the objects of a query. Callers
// without the right to list the sources get the same error for a source that does not exist.
func (inv *Inventory) mayRead(ctx context.Context, verb string, q api.Query) error {
	var err error
	known := inv.config.Sources[q.Source] != nil
	if known {
		err = access.Check(ctx, inv.rights(verb, q.Source, q.Namespace, q.Name)...)
	}
	if denied, ok := errors.AsType[*access.Error](err); known && (!ok || denied.Status != http.StatusForbidden) {
		return err
	}
	has, failed := access.Has(ctx, listSources)
	switch {
	case failed != nil:
		return failed
	case has:
		return err
	}
	return &access.Error{Status: http.StatusForbidden, Message: fmt.Sprintf("user %q may not %s these objects of source %q", access.From(ctx).Name, verb, q.Source)}
}

// envFor returns the environment for the filter of a query. Callers without the right to list the
// sources know those only whose objects they may list, and no defines, which may name others: so a
// mistake in a filter does not say which other sources exist.
func (inv *Inventory) envFor(ctx context.Context, queried string) (env *cel.Env, err error) {
	all, err := access.Has(ctx, listSources)
	if err != nil {
		return nil, err
	}
	if all {
		env, err = inv.env()
	} else {
		cfg := inv.environment()
		for source := range cfg.Sources {
			if source != queried && !inv.mayList(ctx, source) {
				delete(cfg.Sources, source)
				delete(cfg.Types, source)
				delete(cfg.Owners, source)
				delete(cfg.ManagedFields, source)
			}
		}
		cfg.Define, cfg.Missing = nil, nil // nil: the messages name the sources that are left
		env, err = cel.NewEnv(cfg)
	}
	if err != nil {
		return nil, &api.QueryError{Message: "filter: " + err.Error()}
	}
	return env, nil
}

// hidden replaces a text of a status that may name objects.
const hidden = "(not shown: you may not list all objects that the text may name)"

// reason returns the reason for the state of a source. It may name objects of all namespaces, so a
// caller with a right to only some of them gets a text without it.
func (inv *Inventory) reason(ctx context.Context, source, text string) string {
	if text == "" || inv.mayList(ctx, source) {
		return text
	}
	return hidden
}

// NewRights makes an inventory of a process without caches. It is for [Inventory.Show] only.
func NewRights(p *compile.Plan) *Inventory { return &Inventory{config: p.Config, seen: seenBy(p)} }

// Show removes the texts that may name objects from a status, unless its reader may list these
// objects.
func (inv *Inventory) Show(ctx context.Context, s api.Status) api.Status {
	if access.From(ctx) == nil {
		return s
	}
	hide := func(text *string, may func(context.Context, string) bool, of string) {
		if *text != "" && !may(ctx, of) {
			*text = hidden
		}
	}
	for i := range s.Sources {
		hide(&s.Sources[i].Reason, inv.mayList, s.Sources[i].Name)
	}
	for i := range s.Routes {
		hide(&s.Routes[i].Paused, inv.mayListSeen, s.Routes[i].Name)
	}
	for i := range s.Checks {
		c := &s.Checks[i]
		switch kind, name, _ := strings.Cut(c.Name, "/"); kind {
		case "config", "includes", "state", "history", "fleet", "lease": // about files, NATS and the Lease
		case "sources":
			hide(&c.Message, inv.mayList, name)
		case "routes":
			hide(&c.Message, inv.mayListSeen, name)
		default: // texts of servers and guests
			hide(&c.Message, inv.mayListSeen, "")
		}
	}
	return s
}

// Resyncing returns an error unless the caller may list the objects that a resync counts.
func (inv *Inventory) Resyncing(ctx context.Context, ask api.Resync) error {
	switch {
	case ask.Route != "":
		return inv.checkSeen(ctx, "list", ask.Route)
	case ask.Source != "" && inv.config.Sources[ask.Source] == nil:
		return nil // the request fails, because there is no such source
	case ask.Source != "":
		return access.Check(ctx, inv.rights("list", ask.Source, "", "")...)
	}
	return access.Check(ctx, inv.rightsToSeen("list", "")...)
}
