package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"time"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/informer"
	"github.com/deltarouter/deltarouter/pkg/metrics"
	"github.com/deltarouter/deltarouter/pkg/pipeline"
	"github.com/deltarouter/deltarouter/pkg/timer"
)

// Offline is a configuration that can be tried out without a cluster, any number of times.
type Offline struct {
	plan *plan
	opts Options
}

// errOffline: there is no cluster to be asked for its schemas.
var errOffline = errors.New("a trial has no cluster")

// NewOffline reads and checks a configuration as [Check] does without a cluster. Schemas is the folder of [PullSchemas]; empty: the one
// that the configuration names, if any. Guests are compiled into the folder cache, so that each is compiled once; empty: for each trial
// anew.
func NewOffline(ctx context.Context, path, schemas string, components Components, cache string, log *slog.Logger) (*Offline, config.Problems) {
	alone := func(config.Cluster) (*informer.Client, error) { return nil, errOffline }
	if cfg, _ := config.Load(path); cfg != nil {
		schemas = cmp.Or(schemas, cfg.Schemas)
	}
	known, err := savedSchemas(schemas)
	if err != nil {
		return nil, config.Problems{{File: path, Path: "schemas", Message: err.Error()}}
	}
	p, problems := (&Plans{known: known.set}).make(ctx, path, components, alone)
	if len(problems) > 0 {
		return nil, problems
	}
	cfg := *p.config
	cfg.State.Dir, cfg.Listen = "", config.Listen{}
	p.config = &cfg
	return &Offline{p, Options{
		Config: path, Components: components, Log: log, Stdout: io.Discard, Surroundings: Surroundings{Cache: cache},
	}}, nil
}

// Config returns the configuration, less what a trial does without: the state folder and the addresses. It must not be modified.
func (o *Offline) Config() *config.Config { return o.plan.config }

// Outcome is what a route has done about a delta: it wrote an event to a sink, or gave the delta up.
type Outcome struct {
	Time  time.Time // by the clock of the trial
	Route string
	Sink  string      // empty: the delta was given up before it got to one
	Event event.Event // if Error is empty
	Error string
}

// Trial is a router between a test and sinks that record: stores, indexes, filters, handlers and routes are those of the configuration,
// and so is all that lies between, but that a route works on one batch at a time and does not wait for it to fill, that its retries
// come at no random times, that what is given up is recorded whatever its onFailure says, and that nothing is kept on disk but for Restart.
//
// Its clock stands still but in Pass and Finish, which move it on as soon as there is nothing to do at that time: so hours take no time,
// and the same trial comes out the same.
//
// The methods are called one at a time.
type Trial struct {
	r     *router
	rec   *recorder
	clock *timer.Fake
	feeds []trialFeed
	due   []string // routes that look at all objects now, see lookAt
	stop  context.CancelFunc

	offline *Offline
	kinds   map[string]string
	dir     string // for Restart; empty: it cannot be
}

type trialFeed struct {
	*informer.Feed

	resource string // as the configuration writes it
}

// Begin opens the parts and starts the routes. kinds has the kinds of the objects, by resource; start is what the clock shows. dir is an empty
// folder that [Trial.Restart] needs; empty: it is not called. The trial is to be closed also if ctx is done.
func (o *Offline) Begin(ctx context.Context, kinds map[string]string, start time.Time, dir string) (*Trial, error) {
	clock := timer.NewFake(start)
	t := &Trial{rec: &recorder{clock: clock}, clock: clock, offline: o, kinds: kinds, dir: dir}
	seen := make(chan struct{})
	close(seen)
	if err := t.begin(ctx, seen); err != nil {
		return nil, err
	}
	return t, nil
}

// begin begins a life of the router. seen is closed when what happened before was seen.
func (t *Trial) begin(ctx context.Context, seen <-chan struct{}) error {
	opts := t.offline.opts
	opts.Surroundings.Clock = t.clock
	opts.Components.Sinks = t.rec.factories(opts.Components.Sinks)
	r := &router{parts: parts{plan: t.offline.plan}, opts: opts, log: opts.Log, metrics: metrics.New()}
	t.r = r
	if err := t.open(ctx, seen); err != nil {
		return errors.Join(err, r.close(ctx))
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	t.stop = stop
	r.pipeline.Start(running)
	r.startWaits(running, r.waits, nil)
	r.requeues.start(running)
	return nil
}

func (t *Trial) open(ctx context.Context, seen <-chan struct{}) error {
	r := t.r
	if err := t.openState(seen); err != nil {
		return err
	}
	r.memories = newMemories(r.state, t.clock)
	r.onClose("components", func(ctx context.Context) error { return r.closeUnused(ctx, &parts{}) })
	if err := r.openComponents(ctx, &parts{}); err != nil {
		return err
	}
	watching := informer.Config{
		Cluster: r.plan.config.Cluster.Name, Metrics: r.metrics, Log: r.log, Downstream: downstream{r}, Clock: t.clock,
	}
	if r.state != nil {
		watching.Gate = r.state.writer.Gate
	}
	r.factory = informer.New(watching)
	r.openStores(&parts{})
	t.feeds = nil
	watches := make(map[string]*informer.Watch)
	for _, wanted := range r.watches() {
		resource := (&event.Resource{GroupVersionResource: wanted.Spec.Resource}).String()
		watch := r.factory.Watch(wanted.Spec, wanted.Store, wanted.Sources...)
		watches[wanted.Spec.ID()] = watch
		feed, err := watch.Feed(t.kinds[resource])
		if err != nil {
			return fmt.Errorf("sources.%s: %w", wanted.Sources[0].Name, err)
		}
		t.feeds = append(t.feeds, trialFeed{feed, resource})
	}
	if err := r.learnRoutes(ctx, &parts{}); err != nil {
		return err
	}
	routes := r.routes()
	for i := range routes {
		c := &routes[i]
		c.Concurrency, c.OnFailure = 1, pipeline.DeadLetter
		if !c.Grouped { // else what is in a batch is seen
			c.Batch.Wait = 0
		}
		c.Retry.Exact = true
	}
	r.fillCaches()
	r.requeues = newRequeuer(r)
	r.requeues.use(r.requeue) //nolint:contextcheck // they run as long as start says
	cfg := pipeline.Config{Routes: routes, Metrics: r.metrics, Log: r.log, DeadLetters: t.rec, Clock: t.clock, Given: t.rec.given}
	if r.state != nil {
		cfg.Store = r.state
	}
	var err error
	if r.pipeline, err = pipeline.New(cfg); err != nil {
		return err
	}
	return r.openSaved(ctx, watches)
}

// List says what objects there are at first, by resource, and waits until the routes are idle. Texts are as
// [informer.Feed] says.
func (t *Trial) List(ctx context.Context, objects map[string][]string, version string) error {
	for _, f := range t.feeds {
		if err := f.List(ctx, objects[f.resource], version); err != nil {
			return err
		}
	}
	t.r.reloads.wait.Wait() // every source has synced, so each wait ends
	for i := range t.r.plan.routes {
		t.lookAt(&t.r.plan.routes[i])
	}
	return t.idle(ctx)
}

// Put says what an object is now, and waits until the routes are idle.
func (t *Trial) Put(ctx context.Context, resource, text string) error {
	return t.feed(ctx, resource, func(f *informer.Feed) error { return f.Put(ctx, text) })
}

// Delete says that an object is gone, whose last state is text, and waits until the routes are idle.
func (t *Trial) Delete(ctx context.Context, resource, text string) error {
	return t.feed(ctx, resource, func(f *informer.Feed) error { return f.Delete(ctx, text) })
}

// Sync puts an object through once more, and waits until the routes are idle.
func (t *Trial) Sync(ctx context.Context, resource string, key event.Key) error {
	return t.feed(ctx, resource, func(f *informer.Feed) error { return f.Sync(ctx, key) })
}

func (t *Trial) feed(ctx context.Context, resource string, say func(*informer.Feed) error) error {
	for _, f := range t.feeds {
		if f.resource != resource {
			continue
		}
		if err := say(f.Feed); err != nil {
			return err
		}
	}
	return t.idle(ctx)
}

// idle waits until there is nothing to do at the time that the clock shows.
func (t *Trial) idle(ctx context.Context) error {
	for {
		for ; len(t.due) > 0; t.due = t.due[1:] {
			if err := t.look(ctx, t.due[0]); err != nil {
				return err
			}
		}
		if err := t.settle(ctx); err != nil {
			return fmt.Errorf("the routes did not come to an end: %w", err)
		}
		if !t.r.requeues.settle(ctx) {
			return ctx.Err()
		}
	}
}

// lookAt has a route look at all objects, now if it has to, and then as often as it wants to.
func (t *Trial) lookAt(route *routePlan) {
	if t.r.pipeline.NeedsLook(route.Name) {
		t.due = append(t.due, route.Name)
	}
	if route.Check == 0 {
		return
	}
	var again timer.Timer
	next := t.clock.Now().Add(route.Check)
	life := t.r
	again = t.clock.NewTimer(func() {
		if t.r != life {
			return
		}
		t.due = append(t.due, route.Name)
		next = next.Add(route.Check)
		again.Set(next)
	})
	again.Set(next)
}

// look has a route look at all objects.
func (t *Trial) look(ctx context.Context, route string) error {
	look, err := t.r.pipeline.Look(route)
	if err != nil {
		return err
	}
	for _, source := range t.r.pipeline.SourcesOf(route) {
		for _, f := range t.feeds {
			if err := f.Resync(ctx, source, look.Admit); err != nil {
				return err
			}
		}
	}
	look.End(func(string) bool { return true })
	return nil
}

// Pass lets time go by until to.
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

// Finish lets time go by until the routes owe nothing. The error, if that does not happen before ctx is done, says how much is owed by
// which route.
func (t *Trial) Finish(ctx context.Context) error {
	for t.owes() {
		next, ok := t.clock.Next()
		if !ok || ctx.Err() != nil {
			return fmt.Errorf("the routes did not come to an end: %w", t.r.pipeline.Settle(ctx))
		}
		if err := t.Pass(ctx, next); err != nil {
			return err
		}
	}
	return nil
}

func (t *Trial) owes() bool {
	return slices.ContainsFunc(t.r.pipeline.Status(), func(s pipeline.RouteStatus) bool { return s.Owed > 0 })
}

// Take returns what came out since the last time: of each route, in the order of the configuration, for each of its sinks what was
// written in order, and then what was given up.
func (t *Trial) Take() []Outcome {
	came := t.rec.take()
	var sorted []Outcome
	for _, route := range t.r.plan.routes {
		for _, sink := range append(slices.Clone(route.To), "") {
			for i := range came {
				if came[i].Route == route.Name && came[i].Sink == sink {
					sorted = append(sorted, came[i])
				}
			}
		}
	}
	return sorted
}

// Close ends the routes and closes the parts.
func (t *Trial) Close(ctx context.Context) error {
	t.stop()
	t.r.reloads.wait.Wait()
	t.r.requeues.wait.Wait()
	return t.r.close(ctx)
}
