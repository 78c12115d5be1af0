// Package engine moves deltas: it opens the runtime set of a configuration (components, stores,
// routes), and joins the factory, the pipeline and the state. It reads no configuration and serves
// no API.
//
// [State] is the state folder of a router: it collects the state of sources, routes and handlers
// at one moment, writes it, and restores it after a restart. [Watches] runs the `watches` of
// routes: it finds the objects that depend on changes of other sources, and emits them once more.
package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/internal/history"
	"github.com/deltarouter/deltarouter/internal/inspect"
	"github.com/deltarouter/deltarouter/internal/pipeline"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/informer"
)

// CloseTimeout is the time that all handlers and sinks together have to close.
const CloseTimeout = 5 * time.Second

// Engine is the part of a router that moves deltas: the runtime set of a configuration, the
// informer factory that supplies it, and the pipeline. It has no API and reads no file; a trial and
// a replay have one too.
//
// It is opened downstream first: openSet, openFactory, openPipeline, openSaved, start.
type Engine struct {
	*Env

	Set      *Set
	Pipeline *pipeline.Pipeline
	Watches  *Watches
	Taps     *inspect.Taps // nil: there are no taps
	History  *history.Log  // nil: there is none
	Waits    Tasks         // of routes for the sources of their look-ups
	closers  []closer      // in the order of opening
}

// New makes the engine of a plan. Nothing is open yet.
func New(env *Env, p *compile.Plan) *Engine {
	return &Engine{Env: env, Set: NewSet(env, p)}
}

// closer closes an opened component.
type closer struct {
	name string
	end  func(context.Context) error
}

// OnClose makes Close call end, before all functions that were added earlier.
func (e *Engine) OnClose(name string, end func(context.Context) error) {
	e.closers = append(e.closers, closer{name, end})
}

// OpenSet opens the components of the set.
func (e *Engine) OpenSet(ctx context.Context) error {
	e.Memories = NewMemories(e.State, e.Clock)
	e.OnClose("components", func(ctx context.Context) error { return e.Set.CloseUnused(ctx, &Set{}) })
	return e.Set.OpenComponents(ctx, &Set{})
}

// OpenFactory makes the factory that supplies the deltas, and the stores of the set. client is nil
// if deltas are injected.
func (e *Engine) OpenFactory(client *informer.Client) {
	cfg := informer.Config{
		Client: client, Cluster: e.Set.Plan.Config.Cluster.Name, Metrics: e.Metrics, Log: e.Log, Downstream: e, Clock: e.Clock,
		TakesInitial: func(source string) bool { return e.Pipeline.Takes(source, event.Added, true) },
	}
	if e.State != nil {
		cfg.Gate = e.State.Writer.Gate
	}
	e.Factory = informer.New(cfg)
	e.Set.OpenStores(&Set{})
}

// OpenPipeline makes the pipeline with the routes of the set.
func (e *Engine) OpenPipeline(cfg pipeline.Config) (err error) {
	e.Set.fillCaches()
	cfg.Metrics, cfg.Log, cfg.Clock = e.Metrics, e.Log, e.Clock
	if e.State != nil {
		cfg.Store = e.State
	}
	if e.Pipeline, err = pipeline.New(cfg); err != nil {
		return err
	}
	e.Watches = newWatches(watchesConfig{
		Pipeline: e.Pipeline, Factory: e.Factory, Taps: e.Taps, Metrics: e.Metrics, Log: e.Log, Clock: e.Clock, Saved: e.State != nil,
	})
	return nil
}

// OpenSaved restores the saved state.
func (e *Engine) OpenSaved(ctx context.Context, watches map[string]*informer.Watch) error {
	if e.State != nil {
		e.State.Use(e.Factory, e.Pipeline, e.Watches)
		e.State.Announce(e.Metrics)
		e.Memories.Withhold(e.Set.Plan.SeeSecrets())
		if err := e.State.Restore(ctx, watches, e.Set.Plan); err != nil {
			return err
		}
		if err := e.State.RestoreWatches(e.Set.Watches, e.Set.Plan.Routes, func(string) bool { return true }); err != nil {
			return fmt.Errorf("state.dir: %w", err)
		}
	}
	e.Watches.Use(e.Set.Watches, e.Set.Plan.Routes) //nolint:contextcheck // they run as long as start says
	return nil
}

// Start starts the routes. They deliver until Close; the end of watching stops the waits for
// sources.
func (e *Engine) Start(running, watching context.Context) {
	e.Pipeline.Start(running)
	e.Waits.Start(watching, e.Set.Waits, nil)
	e.Watches.Start(watching)
	e.Set.Remote.Announce()
}

// Admit implements informer.Downstream.
func (e *Engine) Admit(ctx context.Context, delta *event.Delta) (event.Admission, error) {
	e.Taps.Offer(delta)
	admission, err := e.Pipeline.Admit(ctx, delta)
	if err != nil {
		return nil, err
	}
	e.History.Delta(delta)
	return e.Watches.After(delta, admission), nil
}

// Close closes all opened components, in the order of the flow. It may be called after opening has
// failed half-way.
func (e *Engine) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), CloseTimeout)
	defer cancel()
	var errs []error
	if e.Pipeline != nil {
		errs = append(errs, e.Pipeline.Close(ctx))
	}
	for i := len(e.closers) - 1; i >= 0; i-- {
		if err := e.closers[i].end(ctx); err != nil {
			errs = append(errs, fmt.Errorf("closing %s: %w", e.closers[i].name, err))
		}
	}
	return errors.Join(errs...)
}

// Tasks are goroutines, one per route, that a reload ends or keeps. The zero value has none. Start
// is called by one goroutine at a time.
type Tasks struct {
	cancel  map[string]context.CancelFunc // by route
	running sync.WaitGroup
}

// Start runs these tasks, and ends those of routes that the change does not keep. A kept route
// keeps its task. change is nil at the start of the router.
func (t *Tasks) Start(ctx context.Context, all map[string]func(context.Context), change *pipeline.Change) {
	if t.cancel == nil {
		t.cancel = make(map[string]context.CancelFunc)
	}
	kept := func(name string) bool { return change != nil && slices.Contains(change.Kept(), name) }
	for name, cancel := range t.cancel {
		if !kept(name) {
			cancel()
			delete(t.cancel, name)
		}
	}
	for name, run := range all {
		if t.cancel[name] != nil || kept(name) {
			continue
		}
		until, cancel := context.WithCancel(ctx)
		t.cancel[name] = cancel
		t.running.Go(func() { run(until) })
	}
}

// Wait waits until all have ended.
func (t *Tasks) Wait() { t.running.Wait() }
