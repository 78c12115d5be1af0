// Package inspect answers questions about the running router: cached objects, deltas in a tap,
// objects for which conditions hold, and dead letters. It never blocks a delta.
package inspect

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/deltarouter/deltarouter/internal/api"
	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/internal/kept"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/index"
	"github.com/deltarouter/deltarouter/pkg/informer"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// Inventory is the cache of one configuration, for the API. It is immutable; a reload replaces it.
type Inventory struct {
	config   *config.Config
	catalog  *index.Catalog
	watches  map[string][]informer.Spec // by source, in the order of the catalog's stores
	stores   map[string][]*index.Store  // by source, in the same order
	specs    map[string]map[string]index.Spec
	handlers []api.HandlerStatus
	breaking map[string]breaking // the handlers with a circuit breaker
	kept     map[string]kept.Set // by source, of those that keep some fields only
	// seen has, by route, the sources whose objects the route may show in its results.
	seen map[string][]string
	// lookups has, by route, the sources that it looks objects up in.
	lookups map[string][]string
	remote  map[string]remote // by instance of a handler on workers
	// environment returns a new environment for the expressions of API queries.
	environment func() cel.EnvConfig
	// env compiles the expressions of API queries. It is made at its first use.
	env func() (*cel.Env, error)
	// routes compiles the filters of routes again, for taps.
	routes func() (*cel.Env, error)
	scoped map[string]scoped // the routes of fragments, by name
	// view identifies the stores and their indexes; empty: it differs from all others.
	view string
	// replaced is closed when a reload replaces the inventory by one with another view; nil: never.
	replaced chan struct{}
}

// Current is the inventory of the running configuration. Load does not return nil after the first
// Store.
type Current struct{ inventory atomic.Pointer[Inventory] }

// Load returns the inventory.
func (c *Current) Load() *Inventory { return c.inventory.Load() }

// Store replaces the inventory. It ends the streams of objects of the previous one, unless both
// have the same view: a reload that changes only routes, which authors of objects can cause at any
// time, does not concern a stream. Calls do not overlap.
func (c *Current) Store(inv *Inventory) {
	before := c.Load()
	same := before != nil && before.view != "" && before.view == inv.view
	if same {
		inv.replaced = before.replaced
	}
	c.inventory.Store(inv)
	if before != nil && before.replaced != nil && !same {
		close(before.replaced)
	}
}

// viewOf identifies the stores of a plan and their indexes.
func viewOf(p *compile.Plan, stores map[informer.Spec]*index.Store, indexes map[string]map[string]index.Spec) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%q", p.Defines()) // filters of streams may use them
	for _, name := range slices.Sorted(maps.Keys(p.Sources)) {
		fmt.Fprintf(&b, "\n%q", name)
		for _, spec := range p.Sources[name].Specs {
			fmt.Fprintf(&b, " %+v %p", spec, stores[spec])
		}
		b.WriteString(p.Sources[name].Kept.Text())
		for _, one := range slices.Sorted(maps.Keys(indexes[name])) {
			fmt.Fprintf(&b, " %q %q", one, indexes[name][one].Name)
		}
	}
	return b.String()
}

// NewCurrent has an inventory with the configuration only. It is used until the stores are open.
func NewCurrent(cfg *config.Config) *Current {
	c := &Current{}
	c.Store(&Inventory{config: cfg})
	return c
}

// NewInventory makes the inventory of a plan whose handlers and stores are open. indexes maps the
// configured names of each source's indexes.
func NewInventory(p *compile.Plan, handlers map[string]plugins.Handler, stores map[informer.Spec]*index.Store, indexes map[string]map[string]index.Spec) *Inventory {
	inv := &Inventory{
		config: p.Config, catalog: index.NewCatalog(), watches: make(map[string][]informer.Spec), stores: make(map[string][]*index.Store), specs: indexes,
		kept: keptBy(p), seen: seenBy(p), breaking: make(map[string]breaking), view: viewOf(p, stores, indexes), replaced: make(chan struct{}),
	}
	for name, source := range p.Sources {
		var all []*index.Store
		for _, spec := range source.Specs {
			all = append(all, stores[spec])
		}
		inv.watches[name], inv.stores[name] = source.Specs, all
		inv.catalog.Add(name, all, indexes[name])
	}
	for _, name := range slices.Sorted(maps.Keys(handlers)) {
		// an instance of an include is called include/handler
		shown := api.HandlerStatus{Name: name, Kind: p.Config.Handlers[path.Base(name)].Kind}
		if pinned, ok := handlers[name].(plugins.Pinned); ok {
			shown.SHA256 = pinned.Digest()
		}
		inv.handlers = append(inv.handlers, shown)
		if b, ok := handlers[name].(breaking); ok {
			inv.breaking[name] = b
		}
	}
	types, owners := p.Types, p.Owners
	inv.scoped = make(map[string]scoped)
	inv.remote = make(map[string]remote)
	inv.lookups = make(map[string][]string)
	for i := range p.Routes {
		route := &p.Routes[i]
		inv.addRemote(route)
		inv.lookups[route.Name] = route.Lookups()
		if route.Fragment == nil {
			continue
		}
		inv.scoped[route.Name] = scoped{
			config:  route.Config,
			env:     func() (*cel.Env, error) { return cel.NewEnv(compile.Environment(route.Config, types, owners)) },
			catalog: func() *index.Catalog { return inv.scopedCatalog(route.Scope(), indexes) },
		}
	}
	inv.environment = func() cel.EnvConfig {
		cfg := compile.Environment(inv.config, types, owners)
		for name := range cfg.Sources {
			cfg.Sources[name] = inv.indexes(name)
		}
		return cfg
	}
	inv.env = sync.OnceValues(func() (*cel.Env, error) { return cel.NewEnv(inv.environment()) })
	inv.routes = sync.OnceValues(func() (*cel.Env, error) { return cel.NewEnv(compile.Environment(inv.config, types, owners)) })
	return inv
}

// scoped is the part of the inventory that a route of a fragment sees.
type scoped struct {
	config  *config.Config
	env     func() (*cel.Env, error)
	catalog func() *index.Catalog
}

// scopedCatalog returns the catalog for the look-ups of a scope.
func (inv *Inventory) scopedCatalog(scope *config.Scope, indexes map[string]map[string]index.Spec) *index.Catalog {
	catalog := index.NewScopedCatalog(scope)
	for name, stores := range inv.stores {
		catalog.Add(name, stores, indexes[name])
	}
	return catalog
}

// breaking is a handler with a circuit breaker.
type breaking interface {
	// Unavailable returns since when and why the handler takes no deltas. nil: it does. It may be
	// called after Close.
	Unavailable() (since time.Time, reason error)
}

// HandlerChecks returns a check for each handler that takes no deltas at the moment.
func (inv *Inventory) HandlerChecks() (checks []api.Check) {
	for _, name := range slices.Sorted(maps.Keys(inv.breaking)) {
		if since, reason := inv.breaking[name].Unavailable(); reason != nil {
			checks = append(checks, api.Check{
				Name: "handlers/" + name, Message: fmt.Sprintf("unavailable since %s: %s", since.UTC().Format(time.RFC3339), plugins.Bound(reason)),
			})
		}
	}
	return checks
}

// Lookups returns the sources that a route looks objects up in.
func (inv *Inventory) Lookups(route string) []string { return inv.lookups[route] }

// Handlers returns the open handlers in the order of their names.
func (inv *Inventory) Handlers() []api.HandlerStatus { return inv.handlers }

// Config returns the configuration. It must not be modified.
func (inv *Inventory) Config() *config.Config { return inv.config }

// indexes returns the indexes of a source that API queries may use. It excludes configured indexes
// of Secrets: they may be made of secret data, and a query would be a guess at it.
func (inv *Inventory) indexes(source string) []string {
	names := index.Builtins()
	if !inv.guarded(source) {
		names = append(names, slices.Sorted(maps.Keys(inv.config.Sources[source].Indexes))...)
	}
	return names
}

// guarded reports whether the source has the data of Secrets.
func (inv *Inventory) guarded(source string) bool {
	resource := inv.watches[source][0].Resource
	return resource.Group == "" && resource.Resource == "secrets" && inv.config.Sources[source].Secrets
}

// Cache answers the API's queries for cached objects.
type Cache struct {
	objects *Current
	factory *informer.Factory
	busy    *places // bounds concurrent queries
	streams *places // bounds concurrent streams, see Watch
}

// NewCache makes a Cache that queries the present inventory.
func NewCache(objects *Current, factory *informer.Factory) *Cache {
	return &Cache{objects, factory, newPlaces(queriesAtOnce, queriesOfUser), newPlaces(maxStreams, streamsOfUser)}
}

// source returns the configured part of the description of a source.
func (inv *Inventory) source(name string) api.SourceInfo {
	of := inv.config.Sources[name]
	return api.SourceInfo{
		Name: name, Resource: of.Resource, Namespaces: of.Namespaces, NamespaceSelector: of.NamespaceSelector,
		Cache: of.Cache, Kept: inv.keptFields(name), Indexes: inv.indexes(name),
	}
}

// Sources implements api.Cache.
func (s *Cache) Sources(ctx context.Context) ([]api.SourceInfo, error) {
	inv := s.objects.Load()
	var all []api.SourceInfo
	for _, name := range slices.Sorted(maps.Keys(inv.config.Sources)) {
		status, _ := s.factory.Status(name)
		info := inv.source(name)
		info.Synced = status.Synced
		if info.Hidden = !inv.mayList(ctx, name); !info.Hidden {
			info.Objects, info.Reason, info.Selected = inv.catalog.Count(name, "", ""), status.Reason, status.Namespaces
		}
		all = append(all, info)
	}
	return all, nil
}
