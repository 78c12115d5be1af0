package app

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/deltarouter/deltarouter/pkg/api"
	"github.com/deltarouter/deltarouter/pkg/checkpoint"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/informer"
	"github.com/deltarouter/deltarouter/pkg/pipeline"
)

const (
	// pollInterval is how often the file is looked at. A file that was written to in between is left for the next time, because it may
	// be half written.
	pollInterval = time.Second
	// swapTimeout is how long the deltas that are on their way may take until the routes can be exchanged.
	swapTimeout = 10 * time.Second
)

// errBusy: the moment to exchange the routes did not come. It is tried again.
var errBusy = errors.New("the routes could not be exchanged yet, it is tried again")

// errStopping: what is asked for would come to nothing.
var errStopping = errors.New("the router is stopping")

// reloads is what becomes of the configuration while the router runs.
type reloads struct {
	failed atomic.Pointer[string]        // why the last one was refused; nil: it was not
	waits  map[string]context.CancelFunc // by route, see parts.waits
	wait   sync.WaitGroup                // for the waits
	again  bool                          // try again
	asked  chan chan<- error             // by the API, which hears what came of it
	ended  chan struct{}                 // closed when nobody hears asked any more
	file   *watchedFile                  // the configuration, as it was no later than it was read
}

// check tells /readyz whether the file is what runs. It holds up nothing: what ran before goes on.
func (l *reloads) check() api.Check {
	c := api.Check{Name: "config", OK: true}
	if reason := l.failed.Load(); reason != nil {
		c.OK, c.Message = false, "the configuration was not reloaded, the one before runs on: "+*reason
	}
	return c
}

// watchConfig reloads when it is told to and when the file changes, until ctx is done.
func (r *router) watchConfig(ctx context.Context) {
	defer close(r.reloads.ended)
	poll := time.NewTicker(pollInterval)
	defer poll.Stop()
	file := r.reloads.file
	for {
		changed := false
		select {
		case <-ctx.Done():
			return
		case <-r.opts.Reload:
			r.log.Info("reloading, as asked")
			file.remember()
			changed = true
		case answer := <-r.reloads.asked:
			r.log.Info("reloading, as asked by the API")
			file.remember()
			answer <- r.tryReload(ctx)
		case <-poll.C:
			changed = file.changed()
		}
		if changed || r.reloads.again {
			_ = r.tryReload(ctx) // is told already
		}
	}
}

// askReload has the configuration reloaded and returns why it was refused.
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

// tryReload reloads, and tells what came of it.
func (r *router) tryReload(ctx context.Context) error {
	err := r.reload(ctx)
	r.reloads.again = errors.Is(err, errBusy)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err == nil {
		r.reloads.failed.Store(nil)
		r.metrics.ConfigReloadOK.Set(1)
		r.metrics.ConfigHash.Reset()
		r.metrics.ConfigHash.WithLabelValues(r.plan.config.Hash).Set(1)
		r.log.Info("reloaded", "config", r.opts.Config, "hash", r.plan.config.Hash,
			"sources", len(r.plan.config.Sources), "routes", len(r.plan.config.Routes))
		return nil
	}
	problems := []string{err.Error()}
	var found config.Problems
	if errors.As(err, &found) {
		problems = problems[:0]
		for _, p := range found {
			problems = append(problems, p.Error())
		}
	}
	reason := problems[0]
	if n := len(problems) - 1; n > 0 {
		reason = fmt.Sprintf("%s (and %d more)", reason, n)
	}
	r.reloads.failed.Store(&reason)
	r.metrics.ConfigReloadOK.Set(0)
	for _, problem := range problems {
		r.log.Error("the configuration is not reloaded", "problem", problem)
	}
	return err
}

// reload makes the file's configuration the one that runs, or changes nothing and says why. What is new is opened first; then the
// routes are exchanged at one moment of all watches; then what is out of use is closed.
func (r *router) reload(ctx context.Context) error {
	p, problems := r.opts.Surroundings.Plans.plan(ctx, r.opts.Config, r.opts.Components,
		func(config.Cluster) (*informer.Client, error) { return r.client, nil })
	if len(problems) == 0 {
		problems = fixed(r.opts.Config, r.plan.config, p.config)
	}
	if len(problems) > 0 {
		return problems
	}
	next := &router{
		parts: parts{plan: p}, opts: r.opts, log: r.log, metrics: r.metrics, client: r.client, server: r.server,
		state: r.state, memories: r.memories, pipeline: r.pipeline, factory: r.factory,
		objects: r.objects, requeues: r.requeues, taps: r.taps,
	}
	err := next.openComponents(ctx, &r.parts)
	var change *pipeline.Change
	if err == nil {
		change, err = next.prepare(ctx, &r.parts)
	}
	if err == nil {
		err = next.swap(ctx, change)
	}
	if err != nil {
		if change != nil {
			change.Abandon()
		}
		err = errors.Join(err, within(ctx, func(ctx context.Context) error { return next.closeUnused(ctx, &r.parts) }))
		r.forgetMetrics(&next.parts)
		return err
	}
	if r.state != nil {
		r.state.resolve(next.resource)
	}
	r.startWaits(ctx, next.waits, change)
	next.startLooks(ctx, &r.looks, change)
	change.Finish(ctx)
	old := r.parts
	r.parts = next.parts
	r.parts.reindex = nil
	if err := within(ctx, func(ctx context.Context) error { return old.closeUnused(ctx, &r.parts) }); err != nil {
		r.log.Warn("what is out of use did not close in order", "err", err)
	}
	r.forgetMetrics(&old)
	r.forget(ctx)
	return nil
}

// forgetMetrics removes the series of handlers and sources that do not run: of what ran before, or of what was refused.
func (r *router) forgetMetrics(others *parts) {
	for name := range others.plan.config.Handlers {
		if r.handlers[name] == nil {
			r.metrics.ForgetHandler(name)
		}
	}
	for name := range others.plan.config.Sources {
		if r.plan.config.Sources[name] == nil {
			r.metrics.ForgetSource(name)
		}
	}
}

// within gives f as long as anything may take to close, also when ctx is done.
func within(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	return f(ctx)
}

// fixed refuses what cannot change while the router runs.
func fixed(file string, old, now *config.Config) (problems config.Problems) {
	for _, section := range []struct {
		name string
		same bool
	}{
		{"cluster", old.Cluster == now.Cluster}, {"state", old.State == now.State}, {"listen", old.Listen == now.Listen},
	} {
		if !section.same {
			problems = append(problems, config.Problem{
				File: file, Path: section.name, Message: "cannot change while the router runs: restart it, or put back what was there",
			})
		}
	}
	return problems
}

// prepare makes the stores' indexes and the routes of the new configuration.
func (r *router) prepare(ctx context.Context, old *parts) (*pipeline.Change, error) {
	if err := r.factory.AwaitLoaded(ctx); err != nil {
		return nil, fmt.Errorf("what was saved is being loaded: %w", err)
	}
	r.openStores(old)
	if err := r.learnRoutes(ctx, old); err != nil {
		return nil, err
	}
	change, err := r.pipeline.Prepare(r.routes())
	if errors.Is(err, pipeline.ErrWaiting) {
		err = fmt.Errorf("%w: %w", errBusy, err)
	}
	if err != nil || r.state == nil {
		return change, err
	}
	return change, r.comeBack(change)
}

// resource returns what a source watches.
func (r *router) resource(source string) *event.Resource {
	s, ok := r.plan.sources[source]
	if !ok {
		return nil
	}
	return r.factory.Resource(s.watches[0])
}

// swap exchanges the watches and the routes.
func (r *router) swap(ctx context.Context, change *pipeline.Change) error {
	ctx, cancel := context.WithTimeout(ctx, swapTimeout)
	defer cancel()
	known := make(map[informer.Spec]bool)
	for _, spec := range r.factory.Specs() {
		known[spec] = true
	}
	defer r.pipeline.Yield()()
	err := r.factory.Reconfigure(ctx, r.watches(), func(held *informer.Held) {
		for _, swap := range r.reindex {
			swap()
		}
		r.fillCaches()
		r.showObjects()
		change.Swap()
		r.requeues.use(r.requeue) //nolint:contextcheck // they run as long as start says
		held.Existing(func(d *event.Delta) func() { return change.Existing(context.WithoutCancel(ctx), d) })
		if r.state == nil {
			return
		}
		for spec := range r.stores {
			if !known[spec] {
				r.state.begin(spec.ID())
			}
		}
		r.state.introduce(r.plan.routes)
	})
	if err != nil {
		return fmt.Errorf("%w: %w", errBusy, err)
	}
	return nil
}

// startWaits lets the routes that are not what they were wait for what they look up.
func (r *router) startWaits(ctx context.Context, waits map[string]func(context.Context), change *pipeline.Change) {
	if r.reloads.waits == nil {
		r.reloads.waits = make(map[string]context.CancelFunc)
	}
	for name, cancel := range r.reloads.waits {
		if change == nil || !slices.Contains(change.Kept(), name) {
			cancel()
			delete(r.reloads.waits, name)
		}
	}
	for name, wait := range waits {
		if r.reloads.waits[name] != nil || change != nil && slices.Contains(change.Kept(), name) {
			continue
		}
		waiting, cancel := context.WithCancel(ctx)
		r.reloads.waits[name] = cancel
		r.reloads.wait.Go(func() { wait(waiting) })
	}
}

// forget removes from the state folder what belongs to nothing any more. What was collected of it is written before, so that nothing
// of it comes after.
func (r *router) forget(ctx context.Context) {
	handlers := slices.Collect(maps.Keys(r.plan.config.Handlers))
	if r.state == nil {
		r.memories.keep(handlers)
		return
	}
	err := within(ctx, r.state.writer.Flush)
	if err == nil {
		r.memories.keep(handlers)
		keep := checkpoint.Configured{Handlers: handlers}
		for spec := range r.stores {
			keep.Watches = append(keep.Watches, spec.ID())
		}
		for _, route := range r.plan.routes {
			keep.Routes = append(keep.Routes, route.Name)
		}
		err = r.state.db.Forget(keep, time.Now())
	}
	if err != nil {
		r.log.Warn(notForgotten, "err", err)
	}
}

// watchedFile notices when the content of a file changes, also where a symlink on its path is exchanged.
type watchedFile struct {
	path    string
	info    os.FileInfo // when it was last looked at; nil: it was not there
	content [sha256.Size]byte
	settled bool // content is of info
}

func newWatchedFile(path string) *watchedFile {
	f := &watchedFile{path: path}
	f.remember()
	return f
}

// remember takes what is there for known.
func (f *watchedFile) remember() {
	f.info, _ = os.Stat(f.path)
	data, _ := os.ReadFile(f.path)
	f.content, f.settled = sha256.Sum256(data), true
}

// changed reports whether there is another content, which was the same at the last look: it is not being written just now. A file
// that is not there is no content.
func (f *watchedFile) changed() bool {
	info, err := os.Stat(f.path)
	if err != nil {
		f.info = nil
		return false
	}
	same := f.info != nil && os.SameFile(f.info, info) && f.info.ModTime().Equal(info.ModTime()) && f.info.Size() == info.Size()
	f.info = info
	if !same {
		f.settled = false
		return false
	}
	if f.settled {
		return false
	}
	data, err := os.ReadFile(f.path)
	if err != nil {
		return false
	}
	sum := sha256.Sum256(data)
	was := f.content
	f.content, f.settled = sum, true
	return sum != was
}
