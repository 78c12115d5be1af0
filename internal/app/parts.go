package app

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/index"
	"github.com/deltarouter/deltarouter/pkg/informer"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// parts is what a configuration brings, and what a reload exchanges.
type parts struct {
	plan     *plan
	sinks    map[string]*component[plugins.Sink]
	handlers map[string]*component[plugins.Handler]
	stores   map[informer.Spec]*index.Store
	indexes  map[string]map[string]index.Spec // by source and by the configured name
	reindex  []func()                         // gives stores that are in use the indexes that they have in this configuration
	fill     []func()                         // see fillCaches
	waits    map[string]func(context.Context) // by route; each ends when what it waits for is there
	requeue  []*requeue                       // of the routes that declare it
	opened   int                              // how many components were ever opened
	known    map[string]bool                  // the routes that the state folder has heard of
	heirs    map[string]bool                  // the routes that inherit what is owed under the name that they had
}

// component is a sink or handler that was opened.
type component[T interface{ Close(context.Context) error }] struct {
	it      T
	content string // its kind, its configuration, and what its files hold
	version string // differs for each that was opened
	workers int    // how many calls of a handler it is made for
	view    *view  // what a handler may look up
}

// openComponents opens the sinks and handlers, but for those that old has already.
func (r *router) openComponents(ctx context.Context, old *parts) error {
	r.opened = old.opened
	r.sinks, r.handlers = make(map[string]*component[plugins.Sink]), make(map[string]*component[plugins.Handler])
	for _, name := range slices.Sorted(maps.Keys(r.plan.config.Sinks)) {
		c := r.plan.config.Sinks[name]
		err := openComponent(ctx, r, r.sinks, old.sinks, factoryOf(r.opts.Components.Sinks, c.Kind), c, r.env("sink", name, 0))
		if err != nil {
			return fmt.Errorf("sinks.%s: %w", name, err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.plan.config.Handlers)) {
		workers := 0
		for _, route := range r.plan.routes {
			if route.Handle == name {
				workers += route.Concurrency
			}
		}
		if workers == 0 {
			r.log.Warn("handler is used by no route and not opened", "handler", name)
			continue
		}
		if err := r.openHandler(ctx, old, name, workers); err != nil {
			return fmt.Errorf("handlers.%s: %w", name, err)
		}
	}
	return nil
}

// openHandler opens a handler with what it may use of the router, unless old has it already: then only what it sees is exchanged.
func (r *router) openHandler(ctx context.Context, old *parts, name string, workers int) (err error) {
	env := r.env("handler", name, workers)
	if env.KV, err = r.memories.open(name); err != nil {
		return err
	}
	v := &view{}
	env.Lookup, env.APIServer = v, hostPort(r.server)
	c := r.plan.config.Handlers[name]
	if err := openComponent(ctx, r, r.handlers, old.handlers, factoryOf(r.opts.Components.Handlers, c.Kind), c, env); err != nil {
		return err
	}
	if opened := r.handlers[name]; opened.view == nil {
		opened.view = v
	}
	r.fillView(name)
	return nil
}

// openComponent opens one, unless the old one of that name is the same and made for as many workers.
func openComponent[T interface{ Close(context.Context) error }](ctx context.Context, r *router, to, old map[string]*component[T],
	factory *plugins.Factory[T], c *config.Component, env plugins.Env,
) error {
	files := []string{}
	if factory.Files != nil {
		files = factory.Files(c.Config)
	}
	content, err := contentOf(c, files)
	if err != nil {
		return err
	}
	if was := old[env.Name]; was != nil && was.content == content && was.workers >= env.Workers {
		to[env.Name] = was
		return nil
	}
	it, err := factory.Open(ctx, c.Config, env)
	if err != nil {
		return err
	}
	r.opened++
	to[env.Name] = &component[T]{it: it, content: content, version: fmt.Sprintf("%d", r.opened), workers: env.Workers}
	return nil
}

// contentOf identifies what a component is made of.
func contentOf(c *config.Component, files []string) (string, error) {
	text, err := c.Config.JSON()
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	fmt.Fprintf(sum, "%s\x00%s", c.Kind, text)
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			continue // opening the component says so
		}
		_, err = io.Copy(sum, f)
		if err = errors.Join(err, f.Close()); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// closeUnused closes what these parts have and the others do not: handlers first.
func (p *parts) closeUnused(ctx context.Context, others *parts) error {
	return errors.Join(closeComponents(ctx, "handler", p.handlers, others.handlers), closeComponents(ctx, "sink", p.sinks, others.sinks))
}

func closeComponents[T interface{ Close(context.Context) error }](ctx context.Context, what string, all, others map[string]*component[T]) error {
	var errs []error
	names := slices.Sorted(maps.Keys(all))
	slices.Reverse(names)
	for _, name := range names {
		if all[name] == others[name] {
			continue
		}
		if err := all[name].it.Close(ctx); err != nil {
			errs = append(errs, fmt.Errorf("closing %s %s: %w", what, name, err))
		}
	}
	return errors.Join(errs...)
}

// openStores makes a store for each distinct thing to watch, but for those that old has. These get other indexes by reindex.
func (r *router) openStores(old *parts) {
	r.waits = make(map[string]func(context.Context))
	r.stores = make(map[informer.Spec]*index.Store)
	r.indexes = make(map[string]map[string]index.Spec)
	shared := make(map[informer.Spec][]index.Spec) // the indexes of all sources of a watch
	for _, name := range slices.Sorted(maps.Keys(r.plan.config.Sources)) {
		r.indexes[name] = r.indexesOf(name)
		for _, spec := range r.plan.sources[name].watches {
			shared[spec] = slices.AppendSeq(shared[spec], maps.Values(r.indexes[name]))
		}
	}
	for spec, indexes := range shared {
		store := old.stores[spec]
		if store == nil {
			store = index.NewStore(indexes...)
		} else if swap := store.Reindex(indexes...); swap != nil {
			r.reindex = append(r.reindex, swap)
		}
		r.stores[spec] = store
	}
}

// watches returns what is to be watched. Sources that watch the same share it.
func (r *router) watches() []informer.Wanted {
	var wanted []informer.Wanted
	for _, name := range slices.Sorted(maps.Keys(r.plan.config.Sources)) {
		source := informer.Source{Name: name, Resync: r.plan.config.Sources[name].Resync}
		for _, spec := range r.plan.sources[name].watches {
			i := slices.IndexFunc(wanted, func(w informer.Wanted) bool { return w.Spec == spec })
			if i < 0 {
				i = len(wanted)
				wanted = append(wanted, informer.Wanted{Spec: spec, Store: r.stores[spec]})
			}
			wanted[i].Sources = append(wanted[i].Sources, source)
		}
	}
	return wanted
}

func (r *router) indexesOf(source string) map[string]index.Spec {
	specs := make(map[string]index.Spec)
	for name, programs := range r.plan.sources[source].indexes {
		texts := make([]string, len(programs))
		for i, e := range r.plan.config.Sources[source].Indexes[name] {
			texts[i] = e.Text
		}
		texts = append(texts, r.plan.defines()) // an index is another one when a define is
		specs[name] = index.NewSpec(texts, programs, r.metrics.IndexErrors.WithLabelValues(source, name), r.log, source+"."+name)
	}
	return specs
}

// defines returns all defines as one text.
func (p *plan) defines() string {
	text, err := json.Marshal(p.config.Define)
	if err != nil || len(p.config.Define) == 0 {
		return ""
	}
	return string(text)
}

// routeVersion says what a route is made of: if it is the same, the route is.
func (r *router) routeVersion(p *routePlan) string {
	type source struct {
		Resync  string
		Indexes map[string]string // the name of each Spec
		Stores  map[string][]string
	}
	made := struct {
		Route   config.Route
		Fed     bool
		Defines string
		Lookups map[string]source
		Handler string
		Sinks   []string
	}{Route: *p.Route, Lookups: make(map[string]source)}
	made.Route.Was, made.Route.FedBy = "", nil // as long as another feeds it, it is no other route
	made.Fed = len(p.FedBy) > 0
	made.Defines = r.plan.defines()
	for _, name := range p.lookups() {
		s := source{Resync: r.plan.config.Sources[name].Resync.String(), Indexes: make(map[string]string), Stores: make(map[string][]string)}
		for index, spec := range r.indexes[name] {
			s.Indexes[index] = spec.Name
		}
		for _, spec := range r.plan.sources[name].watches {
			s.Stores[spec.ID()] = r.storeIndexes(spec)
		}
		made.Lookups[name] = s
	}
	if handler := r.handlers[p.Handle]; handler != nil {
		made.Handler = handler.version
	}
	for _, name := range p.To {
		made.Sinks = append(made.Sinks, r.sinks[name].version)
	}
	text, err := json.Marshal(made)
	if err != nil {
		return "" // never the same
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// storeIndexes returns the names of the indexes that the sources of a watch have.
func (r *router) storeIndexes(spec informer.Spec) (names []string) {
	for source, plan := range r.plan.sources {
		if !slices.Contains(plan.watches, spec) {
			continue
		}
		for _, s := range r.indexes[source] {
			names = append(names, s.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
