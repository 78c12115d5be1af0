package router

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/deltarouter/deltarouter/internal/api"
	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/internal/config/files"
	"github.com/deltarouter/deltarouter/internal/engine"
	"github.com/deltarouter/deltarouter/internal/pipeline"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/informer"
)

const (
	// pollInterval is the interval at which the file is checked. A file that changed since the last
	// check is read at the next one, because it may be half written.
	pollInterval = time.Second
	// swapTimeout is the time that deltas on their way have until the routes can be replaced.
	swapTimeout = 10 * time.Second
	// widenTimeout is the time that lists have which a reload needs.
	widenTimeout = 2 * time.Minute
)

// errBusy: the routes could not be replaced in time. The reload is retried.
var errBusy = errors.New("the routes could not be replaced in time; the reload is retried")

// errFields: the caches do not have all fields yet that the new configuration reads. The reload is
// retried.
var errFields = errors.New("the new configuration reads fields that the cache does not keep yet (cache: auto); the reload is retried")

// errStopping: a reload would have no effect.
var errStopping = errors.New("the router is stopping")

// reloads is the state of reloads while the router runs.
type reloads struct {
	failed atomic.Pointer[string] // why the last one was refused; nil: it was not
	again  bool                   // try again
	asked  chan chan<- error      // by the API, which receives the result
	ended  chan struct{}          // closed when asked is no longer received
	file   *watchedFile           // the configuration, as of its last read or earlier
}

// check returns the check for /readyz that the file is the running configuration. It does not make
// the router unready, because the former configuration continues.
func (l *reloads) check() api.Check {
	c := api.Check{Name: "config", OK: true}
	if reason := l.failed.Load(); reason != nil {
		c.OK, c.Message = false, "the configuration was not reloaded, and the former one continues: "+*reason
	}
	return c
}

// watchConfig reloads on request and when the file changes, until ctx is done.
func (r *router) watchConfig(ctx context.Context) {
	defer close(r.reloads.ended)
	poll := time.NewTicker(pollInterval)
	defer poll.Stop()
	file := r.reloads.file
	fits := newSchemaTimer(r.opts.clock())
	defer fits.Stop()
	for {
		changed, objects := false, false
		select {
		case <-ctx.Done():
			return
		case <-r.opts.Reload:
			r.Log.Info("reloading on a signal")
			file.remember()
			changed = true
		case answer := <-r.reloads.asked:
			r.Log.Info("reloading on a request to the API")
			file.remember()
			answer <- r.tryReload(ctx)
		case <-r.fromObjects.changes.Changed():
			objects = r.fromObjects.apply(file)
		case <-poll.C:
			changed = file.changed()
			objects = r.fromObjects.waits && r.fromObjects.apply(file)
		case <-fits.due:
			changed = r.unfit.fitAgain(ctx, &r.opts, r.client)
			fits.set()
		}
		// A reload that had to wait is tried again at the next poll.
		if changed || objects || r.reloads.again {
			began := time.Now()
			_ = r.tryReload(ctx) // the result is logged
			if objects {
				r.fromObjects.changes.Worked(time.Since(began))
			}
		}
	}
}

// askReload requests a reload and returns the reason of a refusal.
func (r *router) askReload(ctx context.Context) error {
	answer := make(chan error, 1)
	select {
	case r.reloads.asked <- answer:
	case <-r.reloads.ended:
		return errStopping
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// tryReload reloads and reports the result.
func (r *router) tryReload(ctx context.Context) error {
	err := r.reload(ctx)
	// These causes pass without a change of the file, so watchConfig tries again.
	r.reloads.again = errors.Is(err, errBusy) || errors.Is(err, errFields) || errors.Is(err, engine.ErrWorkersBusy)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err == nil {
		r.reloads.failed.Store(nil)
		r.reportIncludes()
		r.unfit.report(r.Set.Plan.Unfit, r.Metrics, r.Log)
		r.useObjects(ctx, r.Set.Plan)
		r.Metrics.ConfigReloadOK.Set(1)
		r.Metrics.ConfigHash.Reset()
		r.Metrics.ConfigHash.WithLabelValues(r.Set.Plan.Config.Hash).Set(1)
		r.Log.Info("reloaded", "config", r.opts.Config, "hash", r.Set.Plan.Config.Hash,
			"sources", len(r.Set.Plan.Config.Sources), "routes", len(r.Set.Plan.Config.Routes))
		r.noted = r.noted.log(r.Log, r.Set.Plan)
		return nil
	}
	// The log has all problems, /readyz the first one.
	problems := textsOf(err)
	reason := firstOf(problems)
	r.reloads.failed.Store(&reason)
	r.Metrics.ConfigReloadOK.Set(0)
	for _, problem := range problems {
		r.Log.Error("the configuration was not reloaded, and the former one continues", "err", problem)
	}
	return err
}

// textsOf returns the text of each problem of a configuration, or of another error.
func textsOf(err error) (texts []string) {
	found, ok := errors.AsType[config.Problems](err)
	if !ok {
		return []string{err.Error()}
	}
	for _, p := range found {
		texts = append(texts, p.Error())
	}
	return texts
}

// firstOf returns the first of some problems, and the number of the others.
func firstOf(problems []string) string {
	if n := len(problems) - 1; n > 0 {
		return fmt.Sprintf("%s (and %d more)", problems[0], n)
	}
	return problems[0]
}

// reload makes the file's configuration the running one, or changes nothing and returns the reason.
// It first opens the new components, then replaces the routes at one moment of all watches, and
// then closes the unused components.
func (r *router) reload(ctx context.Context) error {
	p, problems := r.opts.plan(ctx, r.input(), func(config.Cluster) (*informer.Client, error) { return r.client, nil })
	if p != nil {
		r.reloads.file.include(p.Config.Included())
	}
	if len(problems) == 0 {
		problems = fixed(files.Name(r.opts.Config), r.Set.Plan.Config, p.Config)
	}
	if len(problems) > 0 {
		return problems
	}
	// Up to the swap each step can be undone, and the former configuration delivers all the time.
	next := engine.NewSet(r.Env, p)
	err := next.OpenComponents(ctx, r.Set)
	resume := func() {}
	if err == nil {
		resume, err = r.Set.Remote.Retire(ctx, &next.Remote)
	}
	if err == nil {
		err = r.widen(ctx, next)
	}
	var change *pipeline.Change
	if err == nil {
		change, err = r.prepare(ctx, next)
	}
	if err == nil {
		err = r.swap(ctx, next, change)
	}
	if err != nil {
		if resume(); change != nil {
			change.Abandon()
		}
		err = errors.Join(err, within(ctx, func(ctx context.Context) error { return next.CloseUnused(ctx, r.Set) }))
		r.forgetMetrics(next)
		return err
	}
	// There is no way back from here on, so errors are only logged.
	next.Remote.Announce()
	if r.State != nil {
		r.State.Resolve(next.Resource)
	}
	r.Waits.Start(ctx, next.Waits, change)
	r.rescans.Start(ctx, r.RescansOf(next), change)
	// Batches of the former configuration may use its components until Finish returns.
	change.Finish(ctx)
	old := r.Set
	r.Set = next
	if err := within(ctx, func(ctx context.Context) error { return old.CloseUnused(ctx, r.Set) }); err != nil {
		r.Log.Warn("unused components did not close in order", "err", err)
	}
	if err := within(ctx, func(ctx context.Context) error { return r.useTraces(ctx, r.Set.Plan.Config) }); err != nil {
		r.Log.Warn("the former traces were not exported in time", "err", err)
	}
	r.useHistory()
	r.forgetMetrics(old)
	r.forget(ctx)
	return nil
}

// forgetMetrics removes the metrics of handlers and sources that do not run: of the former or of
// the refused configuration.
func (r *router) forgetMetrics(others *engine.Set) {
	for name := range others.Plan.Config.Handlers {
		if !r.Set.HasHandler(name) {
			r.Metrics.ForgetHandler(name)
		}
	}
	for name := range others.Plan.Config.Sources {
		if r.Set.Plan.Config.Sources[name] == nil {
			r.Metrics.ForgetSource(name)
		}
	}
	r.letters.Renamed(others.Plan)
}

// within runs f with the time limit of closing, even if ctx is done.
func within(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), engine.CloseTimeout)
	defer cancel()
	return f(ctx)
}

// fixed refuses changes of settings that cannot change while the router runs.
func fixed(file string, old, now *config.Config) (problems config.Problems) {
	for _, section := range []struct {
		name string
		same bool
	}{
		{"cluster", old.Cluster == now.Cluster},
		{"state", old.State == now.State},
		{"history", old.History.IsOn() == now.History.IsOn()},
		{"listen", old.Listen.Equal(&now.Listen)},
		{"fleet", sameFleet(old.Fleet, now.Fleet)},
	} {
		if !section.same {
			problems = append(problems, config.Problem{
				File: file, Path: section.name, Message: "cannot change while the router runs: restart it, or put back what was there",
			})
		}
	}
	return problems
}

// sameFleet compares the text of two sections.
func sameFleet(old, now *config.Fleet) bool {
	if old == nil || now == nil {
		return old == now
	}
	a, errA := old.Node.JSON()
	b, errB := now.Node.JSON()
	return errA == nil && errB == nil && bytes.Equal(a, b)
}

// prepare makes the stores' indexes and the routes of the new configuration.
func (r *router) prepare(ctx context.Context, next *engine.Set) (*pipeline.Change, error) {
	next.OpenStores(r.Set)
	var err error
	if next.Known, err = r.State.KnownNew(ctx, next.Plan.Routes, r.Set.Plan.Routes); err != nil {
		return nil, err
	}
	change, err := r.Pipeline.Prepare(next.Routes())
	if err != nil || r.State == nil {
		return change, err
	}
	if err := r.State.ComeBack(change, next.Plan.Routes, next.Resource); err != nil {
		return change, err
	}
	appear := change.New()
	return change, r.State.RestoreWatches(next.Watches, next.Plan.Routes, func(id string) bool { return slices.Contains(appear, id) })
}

// input names the configuration for a reload.
func (r *router) input() compile.Input {
	in := inputOf(r.opts)
	in.Former, in.Unfit, in.Expressions = r.Set.Plan.Accepted, r.unfit.disabled, r.expressions
	in.Fragments = r.fromObjects.fragments(r.fromObjects.watcher.Objects())
	return in
}

// longPlan is the time from which on the log has how long compiling the configuration took.
const longPlan = time.Second

// plan compiles the configuration.
func (o *Options) plan(ctx context.Context, in compile.Input, client func(config.Cluster) (*informer.Client, error)) (*compile.Plan, config.Problems) {
	began := time.Now()
	p, problems := o.Dependencies.Plans.Plan(ctx, in, o.Components, client)
	if took := time.Since(began); took > longPlan {
		o.Log.Info("the configuration was compiled", "took", took.Round(time.Millisecond))
	}
	return p, problems
}

// inputOf names the configuration for a start.
func inputOf(opts Options) compile.Input { return compile.Input{Path: opts.Config, Tolerant: true} }

// widen makes the cached objects have the fields that the new configuration reads. Until then the
// former one continues.
func (r *router) widen(ctx context.Context, next *engine.Set) error {
	if err := r.Factory.AwaitLoaded(ctx); err != nil {
		return fmt.Errorf("saved objects are still being restored: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, widenTimeout)
	defer cancel()
	if err := r.Factory.Widen(ctx, next.WantedWatches()); err != nil {
		return fmt.Errorf("%w: %w", errFields, err)
	}
	return nil
}

// swap replaces the watches and the routes.
func (r *router) swap(ctx context.Context, next *engine.Set, change *pipeline.Change) error {
	ctx, cancel := context.WithTimeout(ctx, swapTimeout)
	defer cancel()
	known := make(map[informer.Spec]bool)
	for _, spec := range r.Factory.Specs() {
		known[spec] = true
	}
	// A delta that waits for room in a queue would keep its watch from being held.
	defer r.Pipeline.Yield()()
	err := r.Factory.Reconfigure(ctx, next.WantedWatches(), func(held *informer.Held) {
		// The new routes evaluate deltas with the new indexes, so these come first.
		next.Install()
		r.objects.Store(next.Inventory())
		change.Swap()
		r.Memories.Withhold(next.Plan.SeeSecrets())
		r.Watches.Use(next.Watches, next.Plan.Routes) //nolint:contextcheck // watches have the context of the router
		held.Existing(func(d *event.Delta) event.Admission { return change.Existing(context.WithoutCancel(ctx), d) })
		if r.State == nil {
			return
		}
		// The next cut has the new watches and routes together with the existing objects.
		for _, w := range next.WantedWatches() {
			if !known[w.Spec] {
				r.State.Begin(w.Spec.ID())
			}
		}
		r.State.Introduce(next.Plan.Routes)
	})
	if err != nil {
		return fmt.Errorf("%w: %w", errBusy, err)
	}
	return nil
}

// forget removes the state that the configuration no longer names.
func (r *router) forget(ctx context.Context) {
	if r.State == nil {
		r.Memories.Keep(engine.Remembering(r.Set.Plan.Config))
		return
	}
	// the error is logged
	_ = within(ctx, func(ctx context.Context) error { return r.State.Forget(ctx, r.Set.Plan) })
}
