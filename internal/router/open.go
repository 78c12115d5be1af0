package router

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/deltarouter/deltarouter/internal/api"
	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/internal/engine"
	"github.com/deltarouter/deltarouter/internal/inspect"
	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/internal/pipeline"
	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/informer"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// router is an engine with its interfaces to the outside: the API, the probes and the configuration
// file.
type router struct {
	*engine.Engine

	opts    Options
	client  *informer.Client
	events  *podEvents       // nil: none are created
	objects *inspect.Current // all cached objects, for the API; replaced at a reload
	letters *inspect.DeadLetters
	reloads reloads
	tracing tracing
	// fragments with mistakes
	rejected    rejections
	unfit       unfit
	fromObjects objectRoutes
	rescans     engine.Tasks
	noted       notes                // of the running configuration
	expressions *compile.Expressions // of all plans
	probes      *probes              // nil: there are none
}

// The bounds of all routes of an include or namespace together: bytes of pending deltas in memory,
// a share, as 1/n, of the bytes that all backlogs may have on disk, keys of limits, and objects
// that conditions and delete holds track.
const (
	ownedMemory  = 64 << 20
	ownedSpill   = 4
	ownedKeys    = 100_000
	ownedObjects = 250_000
)

// open opens everything, downstream first, so that every delta finds its receiver.
func (r *router) open(ctx context.Context) error {
	var err error
	if r.client == nil { // it failed before; get the error
		if r.client, err = r.opts.client(r.Set.Plan.Config.Cluster); err != nil {
			return fmt.Errorf("cluster: %w", err)
		}
	}
	r.OnClose("traces", r.tracing.close) // after everything that makes spans
	if err := r.useTraces(ctx, r.Set.Plan.Config); err != nil {
		return err
	}
	r.API = &plugins.API{URL: r.client.Host(), Client: r.client.HTTP()}
	r.OnClose("client", func(context.Context) error { r.client.Close(); return nil })
	if cfg := r.Set.Plan.Config.State; cfg.Dir != "" {
		if r.State == nil {
			if r.State, err = engine.OpenState(cfg, r.opts.Dependencies.Disk, r.opts.term.shipping(), r.Log); err != nil {
				return err
			}
		}
		r.OnClose("state", r.State.Close)
		if err := r.State.OpenLetters(r.letters.Bounds(cfg)); err != nil {
			return err
		}
	}
	r.openHistory()
	if err := r.OpenSet(ctx); err != nil {
		return err
	}
	r.OpenFactory(r.client)
	watches := make(map[string]*informer.Watch)
	for _, w := range r.Set.WantedWatches() {
		watches[w.Spec.ID()] = w.Add(r.Factory)
	}
	r.fromObjects.open(r)
	if r.Set.Known, err = r.State.KnownRoutes(r.Set.Plan.Routes); err != nil {
		return err
	}
	delivering := pipeline.Config{Routes: r.Set.Routes(), Given: r.Taps.Passed, Refused: r.Taps.Refused, Tracer: &r.tracing.tracer, Permit: r.opts.term.permit()}
	delivering.OwnedMemory, delivering.OwnedKeys, delivering.OwnedObjects = ownedMemory, ownedKeys, ownedObjects
	if r.State != nil {
		delivering.DeadLetters = r.State.Letters
		delivering.MaxDisk = int64(r.Set.Plan.Config.State.MaxSize) / engine.SpillShare
		delivering.OwnedDisk = delivering.MaxDisk / ownedSpill
	}
	if err := r.OpenPipeline(delivering); err != nil {
		return err
	}
	r.opts.term.announce(r.Metrics)
	if err := r.OpenSaved(ctx, watches); err != nil {
		return err
	}
	if r.State != nil {
		r.letters.Use(r.State.Letters, r.Pipeline, r.synced)
	}
	r.objects.Store(r.Set.Inventory())
	r.Metrics.SetSecrets(func() int { return len(r.objects.Load().SecretChecks()) })
	if err := r.openProbes(ctx); err != nil {
		return err
	}
	return r.openAPI(ctx)
}

func (o Options) client(cluster config.Cluster) (*informer.Client, error) {
	if client := o.Dependencies.Client; client != nil {
		return client, nil
	}
	return informer.NewClient(cluster, o.Components.Policy)
}

func (o Options) clock() timer.Clock {
	if clock := o.Dependencies.Clock; clock != nil {
		return clock
	}
	return timer.Real()
}

// sourceCheck returns the check of a source for /readyz. A source is reported, but does not make
// the router unready, if the router is not allowed to watch it, if its resource does not exist, or
// if it has synced and receives no changes now or would receive none after its watch ends.
func sourceCheck(s informer.Status) api.Check {
	return api.Check{
		Name: "sources/" + s.Source, OK: s.Synced && s.Reason == "", Holds: !s.Refused && !s.Synced, Message: s.Reason,
	}
}

// openProbes lets the probes show the router, which is open.
func (r *router) openProbes(ctx context.Context) error {
	listen := &r.Set.Plan.Config.Listen
	if r.probes == nil || r.probes.listen.Probes != listen.Probes || r.probes.listen.Access != listen.Access { // the file has changed since it was parsed
		_ = r.probes.close(ctx) // a request that was cut off is sent again
		r.probes = newProbes(*listen, r.Metrics, &r.opts)
	}
	if r.probes == nil {
		return nil
	}
	r.OnClose("probes", r.probes.close)
	r.probes.router.Store(r)
	if r.probes.server.Addr() != "" {
		return nil
	}
	return r.probes.server.Start(ctx)
}

func (r *router) openAPI(ctx context.Context) error {
	again := resyncer{r.Factory, r.Pipeline, r.Taps, r.objects, r.Log}
	cache := inspect.NewCache(r.objects, r.Factory)
	listen := r.Set.Plan.Config.Listen
	cfg := api.ControlConfig{
		Addr: listen.API, Status: r.shownStatus, Reload: r.askReload, Resync: again.resync, Pauser: &again,
		Cache: cache, Watch: cache.Watch, Tap: r.tap, Active: r.active, Checks: r.checks, Metrics: r.Metrics.Handler(), Log: r.Log,
		Promote: r.opts.term.promote,
	}
	if err := engine.Secure(&cfg, listen, r.client, r.Log); err != nil {
		return err
	}
	if r.State != nil { // without a state folder, dead letters are only logged and counted
		cfg.DeadLetters = r.letters
		cfg.Backup = r.State.Backup
	}
	if r.History != nil {
		cfg.History = inspect.NewHistory(r.objects, r.History)
	}
	// A program that calls the API itself needs no address.
	if tell := r.opts.Dependencies.Control; tell != nil {
		tell(cfg)
	}
	if cfg.Addr == "" {
		return nil
	}
	control := api.NewControl(cfg)
	if err := control.Start(ctx); err != nil {
		return err
	}
	r.OnClose("api", control.Close)
	return nil
}

// shownStatus returns the status that the sender of a request may see.
func (r *router) shownStatus(ctx context.Context) api.Status {
	for {
		// A reload between the two would check the rights on other sources.
		objects := r.objects.Load()
		if s := r.status(ctx); objects == r.objects.Load() {
			return objects.Show(ctx, s)
		}
	}
}

// tap implements api.Tap.
func (r *router) tap(ctx context.Context, q api.TapQuery, show func(api.Tapped) error) error {
	return r.Taps.Show(ctx, r.Pipeline, q, show)
}

// active implements api.ControlConfig.Active.
func (r *router) active(ctx context.Context, q api.ActiveQuery) ([]api.Active, bool, error) {
	for {
		// A reload replaces the inventory before the routes, so that these are the routes of
		// objects.
		objects := r.objects.Load()
		if items, more, err := inspect.Active(ctx, r.Pipeline, objects, q); objects == r.objects.Load() {
			return items, more, err
		}
	}
}

// The steps of a start, for the first line of /readyz.
const (
	compiling = "starting: the configuration is being compiled"
	opening   = "starting: the state, the handlers and the sinks are being opened"
)

// probes serves /healthz, /readyz and /metrics from the moment on at which the configuration is
// parsed. The expressions of many owners take longer to compile than a liveness probe waits, so a
// router without a listener would be killed in each start. Nil serves nothing.
type probes struct {
	listen config.Listen
	server *api.Server
	step   atomic.Pointer[string]
	router atomic.Pointer[router] // nil: it is starting
}

// newProbes makes the probes of a parsed configuration; nil: it has none. They do not listen yet.
func newProbes(listen config.Listen, m *metrics.Metrics, opts *Options) *probes {
	if listen.Probes == "" {
		return nil
	}
	p := &probes{listen: listen}
	p.begin(compiling)
	cfg := api.Config{Addr: listen.Probes, Metrics: m.Handler(), Checks: p.checks, Role: p.role, Log: opts.Log}
	if listen.Access != "" {
		cfg.Metrics = nil // this address knows no senders: the API serves them
	}
	p.server = api.New(cfg)
	return p
}

// startProbes makes the probes of a parsed configuration, and lets them listen. If the address is
// in use, the caller tries again later: mistakes of the configuration are reported first.
func startProbes(ctx context.Context, cfg *config.Config, m *metrics.Metrics, opts *Options) *probes {
	p := newProbes(cfg.Listen, m, opts)
	if p != nil {
		_ = p.server.Start(ctx)
	}
	return p
}

// begin names the step of the start that begins.
func (p *probes) begin(step string) {
	if p != nil {
		p.step.Store(&step)
	}
}

// checks returns the checks of the router. Until it is open, one that is not OK.
func (p *probes) checks() []api.Check {
	if r := p.router.Load(); r != nil {
		return r.checks()
	}
	return []api.Check{{Name: "start", Holds: true, Message: *p.step.Load()}}
}

// role returns the first line of /readyz.
func (p *probes) role() string {
	if r := p.router.Load(); r != nil {
		return r.opts.term.role()
	}
	return *p.step.Load()
}

// close stops listening. It may be called more than once.
func (p *probes) close(ctx context.Context) error {
	if p == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), engine.CloseTimeout)
	defer cancel()
	return p.server.Close(ctx)
}
