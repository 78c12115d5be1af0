package app

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync/atomic"

	"github.com/deltarouter/deltarouter/pkg/api"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/informer"
	"github.com/deltarouter/deltarouter/pkg/metrics"
	"github.com/deltarouter/deltarouter/pkg/pipeline"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/timer"
)

// router is everything that runs.
type router struct {
	parts

	opts    Options
	log     *slog.Logger
	metrics *metrics.Metrics
	client  *informer.Client
	server  string // the API server's address

	state *state // nil: nothing outlives the process
	// seen is closed when what happened while the router was down was seen; nil: that is found out, see caughtUp.
	seen     <-chan struct{}
	memories *memories
	pipeline *pipeline.Pipeline
	factory  *informer.Factory
	objects  *atomic.Pointer[inventory] // everything that is cached, for the API; exchanged at a reload
	requeues *requeuer
	taps     *taps    // nil: nobody can look on
	closers  []closer // in the order of opening
	reloads  reloads
	looks    looks
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
	var err error
	if r.client == nil { // it could not be made; say why
		if r.client, err = r.opts.client(r.plan.config.Cluster); err != nil {
			return fmt.Errorf("cluster: %w", err)
		}
	}
	r.server = r.client.Host()
	r.onClose("client", func(context.Context) error { r.client.Close(); return nil })
	if cfg := r.plan.config.State; cfg.Dir != "" {
		if r.state, err = openState(cfg, r.letterBounds(), r.opts.Surroundings.Disk, r.log); err != nil {
			return err
		}
		r.onClose("state", r.state.close)
	}
	r.memories = newMemories(r.state, r.opts.clock())
	r.onClose("components", func(ctx context.Context) error { return r.closeUnused(ctx, &parts{}) })
	if err := r.openComponents(ctx, &parts{}); err != nil {
		return err
	}
	// The pipeline asks the factory which sources have synced, and the factory feeds the pipeline.
	watching := informer.Config{
		Client: r.client, Cluster: r.plan.config.Cluster.Name, Metrics: r.metrics, Log: r.log, Downstream: downstream{r},
		Clock: r.opts.clock(),
	}
	delivering := pipeline.Config{Metrics: r.metrics, Log: r.log, Clock: r.opts.clock(), Given: r.taps.given}
	if r.state != nil {
		watching.Gate = r.state.writer.Gate
		delivering.Store, delivering.DeadLetters = r.state, r.state.letters
		delivering.MaxDisk = int64(r.plan.config.State.MaxSize) / spillShare
	}
	r.factory = informer.New(watching)
	r.openStores(&parts{})
	watches := make(map[string]*informer.Watch)
	for _, w := range r.watches() {
		watches[w.Spec.ID()] = r.factory.Watch(w.Spec, w.Store, w.Sources...)
	}
	if err := r.learnRoutes(ctx, &parts{}); err != nil {
		return err
	}
	if err := r.openPipeline(delivering); err != nil { //nolint:contextcheck // requeues run as long as start says
		return err
	}
	if err := r.openSaved(ctx, watches); err != nil {
		return err
	}
	r.showObjects()
	if err := r.openProbes(ctx); err != nil {
		return err
	}
	return r.openAPI(ctx)
}

func (o Options) client(cluster config.Cluster) (*informer.Client, error) {
	if client := o.Surroundings.Client; client != nil {
		return client, nil
	}
	return informer.NewClient(cluster)
}

func (o Options) clock() timer.Clock {
	if clock := o.Surroundings.Clock; clock != nil {
		return clock
	}
	return timer.Real()
}

// openSaved goes on from what was saved.
func (r *router) openSaved(ctx context.Context, watches map[string]*informer.Watch) error {
	if r.state == nil {
		return nil
	}
	r.state.factory, r.state.pipeline = r.factory, r.pipeline
	r.state.announce(r.metrics)
	return r.state.restore(ctx, watches, r.plan)
}

// downstream hands deltas on to the pipeline, which is made after the factory.
type downstream struct{ r *router }

func (d downstream) Admit(ctx context.Context, delta *event.Delta) (commit func(), err error) {
	d.r.taps.offer(delta, "")
	if commit, err = d.r.pipeline.Admit(ctx, delta); err != nil {
		return nil, err
	}
	return d.r.requeues.after(delta, commit), nil
}

// cacheFolder is the folder in state.dir of what can be made again.
const cacheFolder = "cache"

func (r *router) env(what, name string, workers int) plugins.Env {
	env := plugins.Env{
		Name: name, Cluster: r.plan.config.Cluster.Name, Log: r.log.With(what, name), Metrics: r.metrics,
		Stdout: r.opts.Stdout, Workers: workers, Cache: r.opts.Surroundings.Cache, Clock: r.opts.clock(),
	}
	if dir := r.plan.config.State.Dir; dir != "" {
		env.Cache = filepath.Join(dir, cacheFolder)
	}
	if what == "sink" && r.client != nil { // a trial has none
		env.API = &plugins.API{URL: r.client.Host(), Client: r.client.HTTP()}
	}
	return env
}

func (r *router) openPipeline(cfg pipeline.Config) error {
	cfg.Routes = r.routes()
	r.fillCaches()
	r.requeues = newRequeuer(r)
	r.requeues.use(r.requeue)
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
	cfg := api.ControlConfig{Addr: r.plan.config.Listen.API, Status: r.status, Reload: r.askReload, Resync: r.resync, Cache: newStock(r), Tap: r.tap, Active: r.active, Log: r.log}
	if r.state != nil {
		cfg.DeadLetters = letterDesk{r, r.synced}
	}
	if tell := r.opts.Surroundings.Control; tell != nil {
		tell(cfg)
	}
	if cfg.Addr == "" {
		return nil
	}
	control := api.NewControl(cfg)
	if err := control.Start(ctx); err != nil {
		return err
	}
	r.onClose("api", control.Close)
	return nil
}
