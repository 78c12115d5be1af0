// Package router runs a configuration: it opens everything downstream first, serves the API,
// reloads when the file changes, and stops upstream first.
package router

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/deltarouter/deltarouter/internal/allowance"
	"github.com/deltarouter/deltarouter/internal/api"
	"github.com/deltarouter/deltarouter/internal/checkpoint"
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

// Options has the settings of the command line.
type Options struct {
	Config       string // path of the configuration file
	Components   compile.Components
	Version      string
	Log          *slog.Logger
	Stdout       io.Writer     // where the stdout sink writes
	DrainTimeout time.Duration // the time to deliver the backlog when stopping
	// Reload: each value makes the router read its configuration again. A changed file is read
	// without it.
	Reload <-chan os.Signal
	// Loading is called when the watches begin. loaded is called once all sources have their
	// objects, and a cut has them; after five minutes at the latest. nil: neither is called.
	Loading func() (loaded func())
	// Dependencies replace parts of the router for simulations and trials; the zero value means the
	// real ones.
	Dependencies Dependencies

	term *term // nil: the router is in no fleet
}

// Dependencies replace the surroundings of the router.
type Dependencies struct {
	// Client is used regardless of the configured cluster; nil: the configuration decides.
	Client *informer.Client
	// Disk wraps each transaction of the state file, see Around of checkpoint.Config; nil: none.
	Disk  func(what string, transaction func() error) error
	Plans *compile.Plans // compiled earlier; nil: none are kept
	// Control receives the configuration of the API, whether it is served or not; nil: not called.
	Control func(api.ControlConfig)
	// Clock is the time of routes, handlers and deltas; nil: the real one.
	Clock timer.Clock
	// Cache is the folder for compiled modules, as of engine.Env.
	Cache string
	// Sinks opens a replacement of a sink of the configuration; nil: the sink itself is opened.
	Sinks func(name string) (plugins.Sink, error)
	// HTTP answers the requests of a handler in place of the network; nil: they are sent.
	HTTP func(handler string) http.RoundTripper
}

// Run runs the router until ctx is done, and then stops in order. The error is config.Problems if
// the configuration is invalid; nil after a requested stop, even if some deltas were not delivered
// (that is logged).
func Run(ctx context.Context, opts Options) error {
	restore := informer.QuietKlog(opts.Log)
	defer restore()
	// The configuration decides about the role: a member of a fleet opens nothing before it is
	// elected.
	first, err := read(ctx, opts)
	if err == nil && first.inFleet() {
		return runMember(ctx, opts, first.cfg)
	}
	var r *router
	if err == nil {
		r, err = begin(ctx, opts, first)
	}
	if err == nil {
		r.logStart()
		return r.run(ctx)
	}
	if _, invalid := errors.AsType[config.Problems](err); ctx.Err() != nil && !invalid {
		opts.Log.Info("stopped during the start", "err", err)
		return nil
	}
	return err
}

// reading is the configuration as the start reads it, before anything is opened.
type reading struct {
	file     *watchedFile   // from before, so that a later change is noticed
	cfg      *config.Config // nil: it cannot be read
	mistakes config.Problems
}

// read reads the configuration. The error is that of a read that hangs while ctx is done.
func read(ctx context.Context, opts Options) (*reading, error) {
	return unlessHung(ctx, func() (*reading, error) {
		in := &reading{file: newWatchedFile(opts.Config)}
		if in.cfg, in.mistakes = config.Load(opts.Config, opts.Components.Policy); in.cfg != nil {
			in.file.include(in.cfg.Included())
			in.file.remember()
		}
		return in, nil
	}, func(*reading) {})
}

// inFleet reports whether the configuration has a fleet and no mistakes.
func (in *reading) inFleet() bool {
	return in.cfg != nil && in.cfg.Fleet != nil && len(in.mistakes) == 0
}

// env returns the dependencies of an engine by the options.
func (o Options) env() *engine.Env {
	m := metrics.New()
	m.SetBuildInfo(o.Version)
	m.ConfigReloadOK.Set(1) // none has failed
	return &engine.Env{
		Components: o.Components, Log: o.Log, Metrics: m, Clock: o.clock(), Stdout: o.Stdout,
		Cache: o.Dependencies.Cache, Sinks: o.Dependencies.Sinks, HTTP: o.Dependencies.HTTP,
		Work: o.term.work(), Allowances: allowance.New(o.clock()),
	}
}

// begin calls open, but returns without it if ctx is done while open hangs.
func begin(ctx context.Context, opts Options, in *reading) (*router, error) {
	return unlessHung(ctx, func() (*router, error) { return open(ctx, opts, in) }, func(late *router) {
		if late != nil {
			_ = late.Close(ctx) // the start was abandoned
		}
	})
}

// unlessHung calls a step of the start. If ctx is done while the step hangs, as on a disk that does
// not answer, unlessHung returns an error, and abandon gets the late result.
func unlessHung[T any](ctx context.Context, step func() (T, error), abandon func(late T)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := step()
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
	}
	// Most steps end soon after ctx, and their result can then be closed in order.
	timeout := time.NewTimer(engine.CloseTimeout)
	defer timeout.Stop()
	select {
	case r := <-done:
		return r.value, r.err
	case <-timeout.C:
	}
	go func() { abandon((<-done).value) }()
	var none T
	return none, fmt.Errorf("the start did not end within %s: %w", engine.CloseTimeout, ctx.Err())
}

// open opens everything of a configuration, the probes first. On an error the router is nil and
// everything is closed.
func open(ctx context.Context, opts Options, first *reading) (_ *router, err error) {
	in := inputOf(opts)
	in.Expressions = new(compile.Expressions)
	env := opts.env()
	var early *probes
	var objects objectRoutes
	var saved *engine.State
	if cfg := first.cfg; cfg != nil {
		if len(first.mistakes) == 0 {
			early = startProbes(ctx, cfg, env.Metrics, &opts)
		}
		in.Unfit = leavesOut(cfg)
		saved = objects.restore(&in, cfg, opts)
	}
	defer func() {
		if err != nil {
			_ = early.close(ctx) // the error is the reason
		}
	}()
	var client *informer.Client
	var events *podEvents
	p, problems := opts.plan(ctx, in, func(cluster config.Cluster) (_ *informer.Client, err error) {
		if client, err = opts.client(cluster); err == nil {
			events = newPodEvents(cluster, client, opts)
		}
		return client, err
	})
	if len(problems) > 0 {
		events.rejected(ctx, problems)
		if client != nil {
			client.Close()
		}
		if saved != nil {
			_ = saved.Close(ctx) // nothing was written
		}
		return nil, problems
	}
	early.begin(opening)
	r := &router{Engine: engine.New(env, p), opts: opts, client: client, events: events, expressions: in.Expressions, probes: early, objects: inspect.NewCurrent(p.Config)}
	r.Taps, r.letters = inspect.NewTaps(r.objects), inspect.NewDeadLetters(r.objects, r.Metrics, r.Log)
	r.State = saved
	r.fromObjects.given, r.fromObjects.saved, r.fromObjects.old = objects.given, objects.saved, objects.old
	r.reloads.asked, r.reloads.ended, r.reloads.file = make(chan chan<- error), make(chan struct{}), first.file
	r.Metrics.ConfigHash.WithLabelValues(p.Config.Hash).Set(1)
	r.reportIncludes()
	r.unfit.report(r.Set.Plan.Unfit, r.Metrics, r.Log)
	first.file.include(p.Config.Included())
	// Opening may end because of ctx: that is a stop.
	if err := r.open(ctx); err != nil {
		err = errors.Join(err, r.Close(ctx))
		if saved != nil {
			err = errors.Join(err, saved.Close(ctx)) // in case r does not have it yet
		}
		return nil, err
	}
	return r, nil
}

// run runs the watches and the pipeline until ctx is done.
func (r *router) run(ctx context.Context) error {
	watching, stopWatching := context.WithCancel(ctx)
	defer stopWatching()
	// The writer outlives the watches and the deliveries, because it writes their last changes.
	writing, stopWriting := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWriting()
	var writer, watches sync.WaitGroup
	if r.State != nil {
		writer.Go(func() { r.State.Writer.Run(writing) })
		writer.Go(func() { r.letters.Expire(writing) })
		if r.History != nil {
			writer.Go(func() { r.History.Run(writing) })
		}
		r.opts.term.serve(writing, &writer, r)
	}
	defer r.opts.term.stopAtOnce(ctx, r.Pipeline)()
	r.events.observe(r.conditions())
	r.Start(context.WithoutCancel(ctx), watching)
	watches.Go(func() { r.events.run(watching, r.conditions) })
	if r.opts.Loading != nil {
		set, synced := r.Set, r.syncedSources() // before a reload may change them
		watches.Go(func() { r.load(watching, set, synced) })
	}
	watches.Go(func() { r.Factory.Run(watching) })
	r.useObjects(watching, r.Set.Plan)
	watches.Go(func() { r.fromObjects.writer.Run(watching, r.objectStates) })
	watches.Go(func() { r.fromObjects.ungranted.Run(watching, r.fromObjects.grants) })
	r.rescans.Start(watching, r.RescansOf(r.Set), nil)
	r.watchConfig(watching)
	r.Log.Info("stopping", "drainTimeout", r.opts.DrainTimeout)

	// Upstream first: no delta arrives any more, the backlog is delivered, the rest of it is
	// written, then everything is closed.
	stopWatching()
	r.fromObjects.watcher.Stop()
	watches.Wait()
	r.Waits.Wait()
	r.rescans.Wait()
	r.Watches.Finish()
	r.drain(ctx)
	err := r.rest(ctx)
	stopWriting()
	writer.Wait()
	return errors.Join(err, r.Close(ctx))
}

// rest ends the pipeline and writes the last cut.
func (r *router) rest(ctx context.Context) error {
	if r.opts.term.deposed(ctx) {
		return nil // the state is that of the next leader
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), engine.CloseTimeout)
	defer cancel()
	err := r.Pipeline.Close(ctx)
	if r.State == nil {
		return err
	}
	err = errors.Join(err, r.State.Writer.Flush(ctx))
	r.opts.term.finish(ctx)
	return err
}

// drain delivers the backlog, as far as the timeout allows. In a fleet it only ends the deliveries
// that run, because the next leader has the backlog and waits.
func (r *router) drain(ctx context.Context) {
	if r.opts.term.deposed(ctx) {
		return
	}
	drain := r.Pipeline.Drain
	if r.opts.term != nil {
		drain = func(ctx context.Context) error { return pipeline.Settle(ctx, r.Pipeline) }
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.opts.DrainTimeout)
	defer cancel()
	if err := drain(ctx); err != nil {
		r.Log.Warn("stopped with deltas undelivered", "kept", r.State != nil, "err", err)
	}
}

// logStart logs the start of the router and the routes that run.
func (r *router) logStart() {
	cfg := r.Set.Plan.Config
	r.Log.Info("started", "version", r.opts.Version, "config", r.opts.Config, "cluster", cfg.Cluster.Name, "server", r.client.Host(),
		"sources", len(cfg.Sources), "routes", len(cfg.Routes))
	r.noted = r.noted.log(r.Log, r.Set.Plan)
	if cfg.State.Dir == "" {
		r.Log.Warn("state.dir is not set: a restart loses the pending deltas and lists all sources again, and dead letters are only logged")
	}
}

// notes are the texts of what `router check` warns of in a configuration.
type notes map[string]bool

// log logs the notes about a plan, without those that the plan of before had too, and returns all.
func (n notes) log(to *slog.Logger, p *compile.Plan) notes {
	all := make(notes)
	for _, note := range p.Notes().Sorted() {
		text := note.Error()
		if all[text] = true; !n[text] {
			to.Warn("configuration warning", "warning", text)
		}
	}
	return all
}

// checks returns the checks of the sources and the routes for /readyz and the status.
func (r *router) checks() []api.Check {
	var checks []api.Check
	for _, s := range r.Factory.Statuses() {
		checks = append(checks, sourceCheck(s))
	}
	checks = append(checks, r.opts.term.checks()...)
	checks = append(checks, r.reloads.check())
	checks = append(checks, r.rejected.checks()...)
	checks = append(checks, r.unfit.checks()...)
	checks = append(checks, r.fromObjects.checks()...)
	if r.State != nil {
		checks = append(checks, r.State.Check())
		checks = append(checks, r.historyCheck()...)
	}
	for _, s := range r.Pipeline.Status() {
		if s.Paused != "" {
			checks = append(checks, api.Check{Name: "routes/" + s.Name, Message: "paused: " + s.Paused})
		}
		if waits := waitsFor(r, &s); waits != nil {
			checks = append(checks, api.Check{Name: "routes/" + s.Name, Message: "it waits for all objects of the sources that it looks up: " + strings.Join(waits, ", ")})
		}
		for _, reason := range s.Lacks {
			checks = append(checks, api.Check{Name: "routes/" + s.Name, Message: reason})
		}
		if s.HeldBy != "" {
			checks = append(checks, api.Check{Name: "routes/" + s.Name, Message: fmt.Sprintf("it waits for room in the queue of route %q", s.HeldBy)})
		}
		if s.Deferred {
			checks = append(checks, api.Check{Name: "routes/" + s.Name, Message: fmt.Sprintf("late: the filters and keys of %s take more CPU than a source may spend on them, so the route's own worker evaluates them", checkpoint.Owner(s.ID))})
		}
	}
	checks = append(checks, r.objects.Load().SecretChecks()...)
	checks = append(checks, r.objects.Load().HandlerChecks()...)
	for _, s := range r.Pipeline.Unavailable() { // only its own routes wait
		checks = append(checks, api.Check{Name: "sinks/" + s.Name, Message: fmt.Sprintf("unavailable since %s: %s", s.Since.UTC().Format(time.RFC3339), s.Reason)})
	}
	return checks
}

// waitsFor returns the sources that a route waits for; nil: none.
func waitsFor(r *router, route *pipeline.Status) (sources []string) {
	if !route.Waiting {
		return nil
	}
	for _, source := range r.objects.Load().Lookups(route.Name) {
		if !r.synced(source) {
			sources = append(sources, source)
		}
	}
	return sources
}

// synced reports whether the cache has all objects of the source.
func (r *router) synced(source string) bool {
	return slices.ContainsFunc(r.Factory.Statuses(), func(s informer.Status) bool { return s.Source == source && s.Synced })
}

// status returns the status for the API.
func (r *router) status(ctx context.Context) api.Status {
	s := api.Status{Checks: r.checks(), Handlers: r.objects.Load().Handlers(), Fleet: r.opts.term.shown()}
	s.Objects = objectsRead(r.objects.Load().Config())
	for _, source := range r.Factory.Statuses() {
		s.Sources = append(s.Sources, api.SourceStatus{Name: source.Source, Synced: source.Synced, Reason: source.Reason, Namespaces: source.Namespaces})
	}
	remote := r.Work.Show(ctx)
	for _, route := range r.Pipeline.Status() {
		shown := api.RouteStatus{Name: route.Name, Pending: route.Pending, Bytes: route.Bytes, OnDisk: route.OnDisk, Waiting: route.Waiting, WaitsFor: waitsFor(r, &route), Paused: route.Paused, HeldBy: route.HeldBy, Deferred: route.Deferred, Shadow: route.Shadow}
		if !route.Oldest.IsZero() {
			shown.Oldest = &route.Oldest
		}
		if r.State != nil {
			shown.DeadLetters, shown.EvictedLetters = r.letters.Count(route.ID), r.letters.Evicted(route.ID)
		}
		if of, ok := remote[route.ID]; !ok {
			n := &route.Counts
			shown.Counts = &api.RouteCounts{
				Since: n.Since.UTC(), Matched: n.Matched, Delivered: n.Delivered, HeldBack: n.Suppressed, Coalesced: n.Coalesced,
				Dropped: n.Dropped, Failed: n.Failed, DeadLettered: n.DeadLettered, Shadowed: n.Shadowed,
			}
		} else {
			shown.Workers = &api.WorkersStatus{Partitions: of.Partitions}
			if of.Waiting >= 0 {
				shown.Workers.Waiting = &of.Waiting
			}
		}
		s.Routes = append(s.Routes, shown)
	}
	return s
}
