package app

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"github.com/deltarouter/deltarouter/pkg/api"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/index"
	"github.com/deltarouter/deltarouter/pkg/informer"
	"github.com/deltarouter/deltarouter/pkg/metrics"
	"github.com/deltarouter/deltarouter/pkg/pipeline"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// router is everything that runs.
type router struct {
	plan    *plan
	opts    Options
	log     *slog.Logger
	metrics *metrics.Metrics
	server  string // the API server's address

	sinks    map[string]plugins.Sink
	handlers map[string]plugins.Handler
	catalog  *index.Catalog
	state    *state // nil: nothing outlives the process
	pipeline *pipeline.Pipeline
	factory  *informer.Factory
	waits    []func(context.Context) // run beside the watches; each ends when what it waits for is there
	closers  []closer                // in the order of opening
}

// closer is something that was opened.
type closer struct {
	name string
	end  func(context.Context) error
}

func (r *router) onClose(name string, end func(context.Context) error) {
	r.closers = append(r.closers, closer{name, end})
}

// open opens everything, downstream first, so that nothing arrives where nobody listens.
func (r *router) open(ctx context.Context) error {
	client, err := informer.NewClient(r.plan.config.Cluster)
	if err != nil {
		return fmt.Errorf("cluster: %w", err)
	}
	r.server = client.Host()
	r.onClose("client", func(context.Context) error { client.Close(); return nil })
	if cfg := r.plan.config.State; cfg.Dir != "" {
		if r.state, err = openState(cfg, r.letterBounds(), r.log); err != nil {
			return err
		}
		r.onClose("state", r.state.close)
	}
	if err := r.openSinks(ctx); err != nil {
		return err
	}
	if err := r.openHandlers(ctx); err != nil {
		return err
	}
	// The pipeline asks the factory which sources have synced, and the factory feeds the pipeline.
	watching := informer.Config{
		Client: client, Cluster: r.plan.config.Cluster.Name, Metrics: r.metrics, Log: r.log, Downstream: downstream{r},
	}
	delivering := pipeline.Config{Metrics: r.metrics, Log: r.log}
	if r.state != nil {
		watching.Gate = r.state.writer.Gate
		delivering.Durable, delivering.DeadLetters = true, r.state.letters
	}
	r.catalog = index.NewCatalog()
	r.factory = informer.New(watching)
	watches := r.openWatches()
	if err := r.openPipeline(delivering); err != nil {
		return err
	}
	if err := r.openSaved(ctx, client, watches); err != nil {
		return err
	}
	if err := r.openProbes(ctx); err != nil {
		return err
	}
	return r.openAPI(ctx)
}

// openSaved goes on from what was saved.
func (r *router) openSaved(ctx context.Context, client *informer.Client, watches map[string]*informer.Watch) error {
	if r.state == nil {
		return nil
	}
	r.state.factory, r.state.pipeline = r.factory, r.pipeline
	r.state.announce(r.metrics)
	return r.state.restore(ctx, client, watches, r.plan)
}

// downstream hands deltas on to the pipeline, which is made after the factory.
type downstream struct{ r *router }

func (d downstream) Admit(ctx context.Context, delta *event.Delta) (commit func(), err error) {
	return d.r.pipeline.Admit(ctx, delta)
}

func (r *router) openSinks(ctx context.Context) error {
	r.sinks = make(map[string]plugins.Sink)
	for _, name := range slices.Sorted(maps.Keys(r.plan.config.Sinks)) {
		c := r.plan.config.Sinks[name]
		sink, err := factoryOf(r.opts.Components.Sinks, c.Kind).Open(ctx, c.Config, r.env("sink", name, 0))
		if err != nil {
			return fmt.Errorf("sinks.%s: %w", name, err)
		}
		r.sinks[name] = sink
		r.onClose("sink "+name, sink.Close)
	}
	return nil
}

func (r *router) openHandlers(ctx context.Context) error {
	r.handlers = make(map[string]plugins.Handler)
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
		c := r.plan.config.Handlers[name]
		handler, err := factoryOf(r.opts.Components.Handlers, c.Kind).Open(ctx, c.Config, r.env("handler", name, workers))
		if err != nil {
			return fmt.Errorf("handlers.%s: %w", name, err)
		}
		r.handlers[name] = handler
		r.onClose("handler "+name, handler.Close)
	}
	return nil
}

func (r *router) env(what, name string, workers int) plugins.Env {
	return plugins.Env{
		Name: name, Cluster: r.plan.config.Cluster.Name, Log: r.log.With(what, name), Metrics: r.metrics,
		Stdout: r.opts.Stdout, Workers: workers,
	}
}

// watch is what one Reflector will do: a store, and the sources that see it.
type watch struct {
	store   *index.Store
	sources []informer.Source
}

// openWatches makes a store and a watch for each distinct thing to watch, and returns the watches by their ids. Sources that watch the
// same share both.
func (r *router) openWatches() map[string]*informer.Watch {
	watches := make(map[informer.Spec]*watch)
	names := slices.Sorted(maps.Keys(r.plan.config.Sources))
	indexesOf := make(map[string]map[string]index.Spec)
	shared := make(map[informer.Spec][]index.Spec) // the indexes of all sources of a watch
	for _, name := range names {
		indexesOf[name] = r.indexes(name)
		for _, spec := range r.plan.sources[name].watches {
			shared[spec] = slices.AppendSeq(shared[spec], maps.Values(indexesOf[name]))
		}
	}
	for _, name := range names {
		var stores []*index.Store
		for _, spec := range r.plan.sources[name].watches {
			if watches[spec] == nil {
				watches[spec] = &watch{store: index.NewStore(shared[spec]...)}
			}
			w := watches[spec]
			w.sources = append(w.sources, informer.Source{Name: name, Resync: r.plan.config.Sources[name].Resync})
			stores = append(stores, w.store)
		}
		r.catalog.Add(name, stores, indexesOf[name])
	}
	opened := make(map[string]*informer.Watch)
	for spec, w := range watches {
		opened[spec.ID()] = r.factory.Watch(spec, w.store, w.sources...)
	}
	return opened
}

func (r *router) indexes(source string) map[string]index.Spec {
	specs := make(map[string]index.Spec)
	for name, programs := range r.plan.sources[source].indexes {
		texts := make([]string, len(programs))
		for i, e := range r.plan.config.Sources[source].Indexes[name] {
			texts[i] = e.Text
		}
		specs[name] = index.NewSpec(texts, programs, r.metrics.IndexErrors.WithLabelValues(source, name), r.log, source+"."+name)
	}
	return specs
}

func (r *router) openPipeline(cfg pipeline.Config) error {
	for i := range r.plan.routes {
		cfg.Routes = append(cfg.Routes, r.route(&r.plan.routes[i]))
	}
	var err error
	r.pipeline, err = pipeline.New(cfg)
	return err
}

// sourceCheck tells /readyz about a source. One that may not be watched, or whose resource does not exist, is named but holds up nobody.
func sourceCheck(s informer.Status) api.Check {
	return api.Check{
		Name: "sources/" + s.Source, OK: s.Synced, Holds: !s.Refused, Message: s.Reason,
	}
}

func (r *router) openProbes(ctx context.Context) error {
	if r.plan.config.Listen.Probes == "" {
		return nil
	}
	probes := api.New(api.Config{
		Addr: r.plan.config.Listen.Probes, Metrics: r.metrics.Handler(), Checks: r.checks, Log: r.log,
	})
	if err := probes.Start(ctx); err != nil {
		return err
	}
	r.onClose("probes", probes.Close)
	return nil
}

func (r *router) openAPI(ctx context.Context) error {
	if r.plan.config.Listen.API == "" {
		return nil
	}
	cfg := api.ControlConfig{Addr: r.plan.config.Listen.API, Status: r.status, Log: r.log}
	if r.state != nil {
		cfg.DeadLetters = letterDesk{r, r.synced}
	}
	control := api.NewControl(cfg)
	if err := control.Start(ctx); err != nil {
		return err
	}
	r.onClose("api", control.Close)
	return nil
}
