// Package simulate runs the routes of a configuration without a cluster: in trials step by step,
// and in replays of a recording. It also makes the recordings.
package simulate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/internal/config/files"
	"github.com/deltarouter/deltarouter/internal/engine"
	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/internal/pipeline"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/informer"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// Offline is a configuration for any number of runs without a cluster.
type Offline struct {
	plan *compile.Plan
	env  engine.Env // without the clock and the metrics of a run
}

// errOffline reports that there is no cluster for schemas.
var errOffline = errors.New("a trial has no cluster")

// NewOffline reads and checks a configuration as [Check] does without a cluster. Schemas is a
// folder of [PullSchemas]; empty: the folder that the configuration names, if any. Guests are
// compiled into the folder cache, each once; empty: each trial compiles them again.
func NewOffline(ctx context.Context, path, schemas string, components compile.Components, cache string, log *slog.Logger) (*Offline, config.Problems) {
	alone := func(config.Cluster) (*informer.Client, error) { return nil, errOffline }
	if cfg, _ := config.Load(path, components.Policy); cfg != nil {
		schemas = cmp.Or(schemas, cfg.Schemas)
	}
	known, err := compile.SavedSchemas(schemas)
	if err != nil {
		return nil, config.Problems{{File: files.Name(path), Path: "schemas", Message: err.Error()}}
	}
	p, problems := (&compile.Plans{Known: known.Set}).Make(ctx, compile.Input{Path: path}, components, alone)
	if len(problems) > 0 {
		return nil, problems
	}
	cfg := *p.Config
	modules := plugins.Modules{Dir: compile.ModulesOf(cfg.State), Offline: true}
	cfg.State.Dir, cfg.Listen = "", config.Listen{}
	p.Config = &cfg
	return &Offline{p, engine.Env{Components: components, Log: log, Stdout: io.Discard, Cache: cache, Modules: modules, HTTP: unplugged}}, nil
}

// newEngine makes an engine with a separate clock.
func (o *Offline) newEngine(clock timer.Clock, edit func(env *engine.Env)) *engine.Engine {
	env := o.env
	env.Clock, env.Metrics = clock, metrics.New()
	edit(&env)
	return engine.New(&env, o.plan)
}

// unplugged is a network without connections.
func unplugged(string) http.RoundTripper { return noNetwork{} }

type noNetwork struct{}

var errNoNetwork = errors.New("there is no network here")

// RoundTrip implements http.RoundTripper.
func (noNetwork) RoundTrip(*http.Request) (*http.Response, error) { return nil, errNoNetwork }

// Config returns the configuration without the parts that a trial ignores: the state folder and the
// addresses. It must not be modified.
func (o *Offline) Config() *config.Config { return o.plan.Config }

// Outcome is a result of a route: an event written to a sink, or a delta that was given up.
type Outcome struct {
	Time  time.Time // by the clock of the trial
	Route string
	Sink  string      // the name of the target; empty: the delta was given up before
	Given bool        // the target is a route
	Event event.Event // set if Error is empty
	Body  []byte      // JSON that the sink sends instead of the event; nil: it sends the event
	Error string
	// Object is the one whose delta was given up, as namespace/name. It is set with Error.
	Object string
}

// Trial is a router between a test and recording sinks. It has the stores, indexes, filters,
// handlers and routes of the configuration and the real code between them, with these differences:
//
//   - A route processes one batch at a time and does not wait for it to fill.
//   - Retries have no random delay.
//   - Deltas that are given up are recorded, whatever onFailure is.
//   - Nothing is kept on disk, except for Restart.
//
// Its clock moves only in Pass and Finish, and only when there is nothing to do at the present
// time: hours pass at once, and the same trial has the same results.
//
// The methods must be called one at a time.
type Trial struct {
	e     *engine.Engine
	rec   *recorder
	clock *timer.Fake
	feeds []trialFeed
	due   []string // routes that rescan all objects now, see rescanAll
	stop  context.CancelFunc

	offline *Offline
	scene   Scene
}

// Scene is the environment of a trial.
type Scene struct {
	Kinds map[string]string // of the objects, by resource
	Start time.Time         // the initial time
	Dir   string            // an empty folder for [Trial.Restart]; empty: no restarts
	// Routes are the names of the only routes that run, with those whose events they get; empty:
	// all. Events for a route that does not run are recorded as those for sinks are.
	Routes []string
	// HTTP answers the requests of a handler; nil: they fail. A trial sends none.
	HTTP func(handler string) http.RoundTripper

	fits map[string]string // by source, the recorded one whose lines it gets, in a backtest
}

type trialFeed struct {
	*informer.Injector

	resource string // as in the configuration
	recorded string // the recorded source whose lines it gets, in a backtest; empty: none
}

// Begin opens the components and starts the routes. The trial must be closed even if ctx is done.
func (o *Offline) Begin(ctx context.Context, scene Scene) (*Trial, error) {
	clock := timer.NewFake(scene.Start)
	t := &Trial{rec: &recorder{clock: clock}, clock: clock, offline: o.only(scene.Routes), scene: scene}
	seen := make(chan struct{})
	close(seen)
	if err := t.begin(ctx, seen); err != nil {
		return nil, err
	}
	return t, nil
}

// begin starts the router. seen is closed after the changes since the last stop were seen.
func (t *Trial) begin(ctx context.Context, seen <-chan struct{}) error {
	e := t.offline.newEngine(t.clock, func(env *engine.Env) {
		if t.scene.HTTP != nil {
			env.HTTP = t.scene.HTTP
		}
		env.Sinks = func(name string) (plugins.Sink, error) {
			return recordingSink{t.rec, name, t.offline.bodyOf(name)}, nil
		}
	})
	t.e = e
	if err := t.open(ctx, seen); err != nil {
		return errors.Join(err, e.Close(ctx))
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	t.stop = stop
	e.Start(running, running)
	return nil
}

func (t *Trial) open(ctx context.Context, seen <-chan struct{}) error {
	e := t.e
	if err := t.openState(seen); err != nil {
		return err
	}
	if err := e.OpenSet(ctx); err != nil {
		return err
	}
	e.OpenFactory(nil)
	watches, err := t.openFeeds()
	if err != nil {
		return err
	}
	if e.Set.Known, err = e.State.KnownRoutes(e.Set.Plan.Routes); err != nil {
		return err
	}
	routes := e.Set.Routes()
	for i := range routes {
		c := &routes[i]
		c.Concurrency, c.OnFailure = 1, spec.DeadLetter
		if !c.Grouped { // the content of a group's batch is visible
			c.Batch.Wait = 0
		}
		c.Retry.Exact = true
	}
	t.rec.replaceMissing(routes)
	if err := e.OpenPipeline(pipeline.Config{Routes: routes, DeadLetters: t.rec, Given: t.rec.onForward}); err != nil {
		return err
	}
	return e.OpenSaved(ctx, watches)
}

// openFeeds makes the watches and their injectors.
func (t *Trial) openFeeds() (map[string]*informer.Watch, error) {
	t.feeds = nil
	watches := make(map[string]*informer.Watch)
	for _, wanted := range t.e.Set.WantedWatches() {
		if len(wanted.Sources) == 0 {
			continue // it finds namespaces; in a trial all are selected
		}
		resource := (&event.Resource{GroupVersionResource: wanted.Spec.Resource}).String()
		watch := wanted.Add(t.e.Factory)
		watches[wanted.Spec.ID()] = watch
		feed, err := watch.Injector(t.scene.Kinds[resource])
		if err != nil {
			return nil, fmt.Errorf("sources.%s: %w", wanted.Sources[0].Name, err)
		}
		recorded := ""
		for _, s := range wanted.Sources {
			recorded = cmp.Or(recorded, t.scene.fits[s.Name])
		}
		t.feeds = append(t.feeds, trialFeed{feed, resource, recorded})
	}
	return watches, nil
}

// List sets the initial objects by resource, and returns when the routes are idle. The format of
// the texts is that of [informer.Injector].
func (t *Trial) List(ctx context.Context, objects map[string][]string, version string) error {
	for _, f := range t.feeds {
		if err := f.List(ctx, objects[f.resource], version); err != nil {
			return err
		}
	}
	t.e.Waits.Wait() // every source has synced, so each wait ends
	for i := range t.e.Set.Plan.Routes {
		t.rescanAll(&t.e.Set.Plan.Routes[i])
	}
	return t.idle(ctx)
}

// Put adds or updates an object and returns when the routes are idle.
func (t *Trial) Put(ctx context.Context, resource, text string) error {
	return t.feed(ctx, resource, func(f *informer.Injector) error { return f.Put(ctx, text) })
}

// Delete deletes the object whose last state is text, and returns when the routes are idle.
func (t *Trial) Delete(ctx context.Context, resource, text string) error {
	return t.feed(ctx, resource, func(f *informer.Injector) error { return f.Delete(ctx, text) })
}

// Sync repeats an object and returns when the routes are idle.
func (t *Trial) Sync(ctx context.Context, resource string, key event.Key) error {
	return t.feed(ctx, resource, func(f *informer.Injector) error { return f.Sync(ctx, key) })
}

func (t *Trial) feed(ctx context.Context, resource string, say func(*informer.Injector) error) error {
	for _, f := range t.feeds {
		if f.resource != resource {
			continue
		}
		if err := say(f.Injector); err != nil {
			return err
		}
	}
	return t.idle(ctx)
}

// idle returns when there is nothing to do at the present time.
func (t *Trial) idle(ctx context.Context) error {
	for {
		for ; len(t.due) > 0; t.due = t.due[1:] {
			if err := t.rescan(ctx, t.due[0]); err != nil {
				return err
			}
		}
		if err := t.settle(ctx); err != nil {
			return fmt.Errorf("the routes did not come to an end: %w", err)
		}
		if !t.e.Watches.Settle(ctx) {
			return ctx.Err()
		}
	}
}

// rescanAll schedules the rescans of a route: one now if needed, and its reevaluations.
func (t *Trial) rescanAll(route *compile.Route) {
	if t.e.Pipeline.NeedsRescan(route.Name) {
		t.due = append(t.due, route.Name)
	}
	if route.Reevaluate == 0 {
		return
	}
	var again timer.Timer
	next := t.clock.Now().Add(route.Reevaluate)
	life := t.e
	again = t.clock.NewTimer(func() {
		if t.e != life {
			return
		}
		t.due = append(t.due, route.Name)
		next = next.Add(route.Reevaluate)
		again.Set(next)
	})
	again.Set(next)
}

// rescan rescans all objects for a route.
func (t *Trial) rescan(ctx context.Context, route string) error {
	rescan, err := t.e.Pipeline.Rescan(route) //nolint:contextcheck // the keys of lanes are evaluated at once
	if err != nil {
		return err
	}
	for _, source := range t.e.Pipeline.SourcesOf(route) {
		for _, f := range t.feeds {
			if err := f.Resync(ctx, source, rescan.Admit); err != nil {
				return err
			}
		}
	}
	rescan.End(func(string) bool { return true }) //nolint:contextcheck // the keys of lanes are evaluated at once
	return nil
}

// Pass moves the clock to the time to.
func (t *Trial) Pass(ctx context.Context, to time.Time) error {
	for next, ok := t.clock.Next(); ok && !next.After(to); next, ok = t.clock.Next() {
		t.clock.Advance(next)
		if err := errors.Join(t.idle(ctx), ctx.Err()); err != nil {
			return err
		}
	}
	t.clock.Advance(to)
	return ctx.Err()
}

// Finish moves the clock until no deltas are pending. If ctx is done before, the error names the
// routes with pending deltas.
func (t *Trial) Finish(ctx context.Context) error {
	for t.hasPending() {
		next, ok := t.clock.Next()
		if !ok || ctx.Err() != nil {
			return fmt.Errorf("the routes did not come to an end: %w", t.e.Pipeline.WaitDelivered(ctx))
		}
		if err := t.Pass(ctx, next); err != nil {
			return err
		}
	}
	return nil
}

func (t *Trial) hasPending() bool {
	return slices.ContainsFunc(t.e.Pipeline.Status(), func(s pipeline.Status) bool { return s.Pending > 0 })
}

// Take returns the outcomes since the last call: for each route in the order of the configuration,
// and for each of its sinks, the events in order, and then the deltas that were given up.
func (t *Trial) Take() []Outcome {
	came := t.rec.take()
	var sorted []Outcome
	for _, route := range t.e.Set.Plan.Routes {
		for _, name := range append(namesOfTargets(route.To), "") {
			for i := range came {
				if came[i].Route == route.Name && came[i].Sink == name {
					sorted = append(sorted, came[i])
				}
			}
		}
	}
	return sorted
}

func namesOfTargets(targets []config.Target) (names []string) {
	for i := range targets {
		names = append(names, targets[i].Name())
	}
	return names
}

// Close stops the routes and closes the components.
func (t *Trial) Close(ctx context.Context) error {
	t.stop()
	t.e.Waits.Wait()
	t.e.Watches.Wait()
	return t.e.Close(ctx)
}
