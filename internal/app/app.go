// Package app puts the router together: it checks a configuration, opens everything downstream first, runs until told to stop, and
// stops upstream first. It is the one place that knows the order, and the only package that knows all stages.
package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/deltarouter/deltarouter/pkg/api"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/informer"
	"github.com/deltarouter/deltarouter/pkg/metrics"
	"github.com/deltarouter/deltarouter/pkg/timer"
)

// closeTimeout is how long handlers and sinks may take to close, together.
const closeTimeout = 5 * time.Second

// Options is what the command line says.
type Options struct {
	Config       string // path of the configuration file
	Components   Components
	Version      string
	Log          *slog.Logger
	Stdout       io.Writer     // where the stdout sink writes
	DrainTimeout time.Duration // how long to deliver what is owed when stopping
	// Reload: each value makes the router read its configuration again. It does so by itself when the file changes.
	Reload <-chan os.Signal
	// Surroundings are for simulations and trials; the zero value is the real ones.
	Surroundings Surroundings
}

// Surroundings is what the router has around it.
type Surroundings struct {
	Client *informer.Client // to the API server, whatever the configuration says of the cluster; nil: as it says
	// Disk stands around each transaction of the state file, see Around of checkpoint.Config; nil: nothing does.
	Disk  func(what string, transaction func() error) error
	Plans *Plans // that were made before; nil: none are kept
	// Control is told what the API would answer with, whether it is served or not; nil: nobody is.
	Control func(api.ControlConfig)
	// Clock is what routes and handlers go by, and what deltas are dated by; nil: the real one.
	Clock timer.Clock
	// Cache is the folder for what can be made again where there is no state folder; empty: there is none.
	Cache string
}

// Run runs the router until ctx is done, and then stops in order. The error is config.Problems if the configuration is bad; nil
// after a stop that was asked for, also when something stayed undelivered (it is logged).
func Run(ctx context.Context, opts Options) error {
	restore := informer.QuietKlog(opts.Log)
	defer restore()
	// Before it is read: a change while the router is being opened must not go unnoticed.
	file := newWatchedFile(opts.Config)
	var client *informer.Client
	p, problems := opts.Surroundings.Plans.plan(ctx, opts.Config, opts.Components, func(cluster config.Cluster) (_ *informer.Client, err error) {
		client, err = opts.client(cluster)
		return client, err
	})
	if len(problems) > 0 {
		if client != nil {
			client.Close()
		}
		return problems
	}
	r := &router{
		parts: parts{plan: p}, opts: opts, log: opts.Log, metrics: metrics.New(), client: client, objects: new(atomic.Pointer[inventory]),
		taps: &taps{},
	}
	r.reloads.asked, r.reloads.ended, r.reloads.file = make(chan chan<- error), make(chan struct{}), file
	r.metrics.SetBuildInfo(opts.Version)
	r.metrics.ConfigHash.WithLabelValues(p.config.Hash).Set(1)
	r.metrics.ConfigReloadOK.Set(1)
	// Opening heeds ctx too: a stop while it waits for something is a stop.
	if err := r.open(ctx); err != nil {
		return errors.Join(err, r.close(ctx))
	}
	r.logStart()
	return r.run(ctx)
}

// run feeds the pipeline until ctx is done.
func (r *router) run(ctx context.Context) error {
	watching, stopWatching := context.WithCancel(ctx)
	defer stopWatching()
	writing, stopWriting := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWriting()
	var writer, watches sync.WaitGroup
	if r.state != nil {
		writer.Go(func() { r.state.writer.Run(writing) })
		writer.Go(func() { r.expireLetters(writing) })
	}
	r.pipeline.Start(context.WithoutCancel(ctx))
	watches.Go(func() { r.factory.Run(watching) })
	r.startWaits(watching, r.waits, nil)
	r.startLooks(watching, &r.looks, nil)
	r.requeues.start(watching)
	r.watchConfig(watching)
	r.log.Info("stopping", "drainTimeout", r.opts.DrainTimeout.String())

	// Upstream first: nothing arrives any more, what is owed is delivered, what is owed still is written, then all is closed.
	stopWatching()
	watches.Wait()
	r.reloads.wait.Wait()
	r.looks.wait.Wait()
	r.requeues.ended()
	r.drain(ctx)
	err := r.rest(ctx)
	stopWriting()
	writer.Wait()
	return errors.Join(err, r.close(ctx))
}

// rest ends the pipeline and writes the last cut.
func (r *router) rest(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	err := r.pipeline.Close(ctx)
	if r.state == nil {
		return err
	}
	return errors.Join(err, r.state.writer.Flush(ctx))
}

// drain delivers what is owed, as far as the timeout allows.
func (r *router) drain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.opts.DrainTimeout)
	defer cancel()
	if err := r.pipeline.Drain(ctx); err != nil {
		r.log.Warn("stopped with deltas undelivered", "kept", r.state != nil, "err", err)
	}
}

// close ends all that open has opened, in the order of the flow; it may be called after an open that failed half-way.
func (r *router) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	var errs []error
	if r.pipeline != nil {
		errs = append(errs, r.pipeline.Close(ctx))
	}
	for i := len(r.closers) - 1; i >= 0; i-- {
		if err := r.closers[i].end(ctx); err != nil {
			errs = append(errs, fmt.Errorf("closing %s: %w", r.closers[i].name, err))
		}
	}
	return errors.Join(errs...)
}

// logStart says what runs, and what is given up.
func (r *router) logStart() {
	cfg := r.plan.config
	r.log.Info("started", "version", r.opts.Version, "config", r.opts.Config, "cluster", cfg.Cluster.Name, "server", r.server,
		"sources", len(cfg.Sources), "routes", len(cfg.Routes))
	for _, warning := range r.plan.warnings {
		r.log.Warn("the configuration works, but", "warning", warning.Error())
	}
	if cfg.State.Dir == "" {
		r.log.Warn("state.dir is not set: a restart begins anew, what is owed then is lost, and dead letters are only logged")
	}
}

// checks tells /readyz how the sources and the routes are.
func (r *router) checks() []api.Check {
	var checks []api.Check
	for _, s := range r.factory.Statuses() {
		checks = append(checks, sourceCheck(s))
	}
	checks = append(checks, r.reloads.check())
	if r.state != nil {
		checks = append(checks, r.state.check())
	}
	for _, s := range r.pipeline.Status() {
		if s.Paused != "" {
			checks = append(checks, api.Check{Name: "routes/" + s.Name, Message: "paused: " + s.Paused})
		}
		if s.HeldBy != "" {
			checks = append(checks, api.Check{Name: "routes/" + s.Name, Message: fmt.Sprintf("it feeds route %q, which takes nothing more at the moment", s.HeldBy)})
		}
	}
	for _, s := range r.pipeline.Unavailable() { // its routes wait, and nobody else has to
		checks = append(checks, api.Check{Name: "sinks/" + s.Name, Message: fmt.Sprintf("unavailable since %s: %s", s.Since.UTC().Format(time.RFC3339), s.Reason)})
	}
	return checks
}
