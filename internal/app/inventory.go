package app

import (
	"maps"
	"slices"
	"sync"

	"github.com/deltarouter/deltarouter/pkg/api"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/expr"
	"github.com/deltarouter/deltarouter/pkg/index"
	"github.com/deltarouter/deltarouter/pkg/informer"
)

// inventory is what is cached under one configuration, for the API. It is immutable; a reload exchanges it.
type inventory struct {
	config  *config.Config
	catalog *index.Catalog
	watches map[string][]informer.Spec // by source, in the order of the catalog's stores
	// env compiles what the API is asked. It is made when it is first needed.
	env func() (*expr.Env, error)
	// routes compiles the filters of the routes once more, for taps.
	routes func() (*expr.Env, error)
}

// showObjects lets the API see what is cached now.
func (r *router) showObjects() {
	inv := &inventory{config: r.plan.config, catalog: index.NewCatalog(), watches: make(map[string][]informer.Spec)}
	for name, source := range r.plan.sources {
		var stores []*index.Store
		for _, spec := range source.watches {
			stores = append(stores, r.stores[spec])
		}
		inv.watches[name] = source.watches
		inv.catalog.Add(name, stores, r.indexes[name])
	}
	types, owners := r.plan.types, r.plan.owners
	inv.env = sync.OnceValues(func() (*expr.Env, error) {
		cfg := environment(inv.config, types, owners)
		for name := range cfg.Sources {
			cfg.Sources[name] = inv.indexes(name)
		}
		return expr.NewEnv(cfg)
	})
	inv.routes = sync.OnceValues(func() (*expr.Env, error) { return expr.NewEnv(environment(inv.config, types, owners)) })
	r.objects.Store(inv)
}

// indexes returns the indexes of a source that the API may ask. Those of Secrets may be made of their data, and asking for a value
// would be guessing at it.
func (inv *inventory) indexes(source string) []string {
	names := index.Builtins()
	if !inv.guarded(source) {
		names = append(names, slices.Sorted(maps.Keys(inv.config.Sources[source].Indexes))...)
	}
	return names
}

// guarded reports whether the source has the data of Secrets.
func (inv *inventory) guarded(source string) bool {
	resource := inv.watches[source][0].Resource
	return resource.Group == "" && resource.Resource == "secrets" && inv.config.Sources[source].Secrets
}

// stock answers what the API asks about the cache.
type stock struct {
	r    *router
	busy chan struct{} // has room for the queries that may be evaluated at a time
}

func newStock(r *router) stock { return stock{r, make(chan struct{}, queriesAtOnce)} }

// Sources implements api.Cache.
func (s stock) Sources() []api.SourceInfo {
	inv := s.r.objects.Load()
	var all []api.SourceInfo
	for _, name := range slices.Sorted(maps.Keys(inv.config.Sources)) {
		source := inv.config.Sources[name]
		status, _ := s.r.factory.Status(name)
		all = append(all, api.SourceInfo{
			Name: name, Resource: source.Resource, Namespaces: source.Namespaces, Cache: source.Cache, Indexes: inv.indexes(name),
			Objects: inv.catalog.Count(name, "", ""), Synced: status.Synced, Reason: status.Reason,
		})
	}
	return all
}
