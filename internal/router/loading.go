package router

import (
	"context"
	"slices"
	"time"

	"github.com/deltarouter/deltarouter/internal/engine"
)

const (
	// loadingBound is the longest time for which a router counts as loading: a source may never
	// have its objects, because the router has no right to read them.
	loadingBound = 5 * time.Minute
	// settling is the time after a load for which the router still counts as loading: conditions
	// are evaluated for all objects, and existing objects are delivered.
	settling = 10 * time.Second
)

// load tells Options.Loading when the router begins to fill its caches, and when they are full: the
// sources have their objects, a cut has them, because the first one takes memory too, and they are
// compressed.
func (r *router) load(ctx context.Context, set *engine.Set, synced []<-chan struct{}) {
	loaded := r.opts.Loading()
	defer loaded()
	steps := []func(context.Context){set.Compress}
	if r.State != nil {
		steps = slices.Insert(steps, 0, r.State.Writer.AwaitCut)
	}
	if awaitLoaded(ctx, synced, steps...) {
		r.Log.Info("the sources have their objects, and the caches are compressed", "objects", set.Objects(), "bytes", set.Bytes())
	}
}

// syncedSources returns the channels that are closed when the sources of the present configuration
// have their objects.
func (r *router) syncedSources() (all []<-chan struct{}) {
	for source := range r.Set.Plan.Config.Sources {
		all = append(all, r.Factory.Synced(source))
	}
	return all
}

// awaitLoaded waits until all channels are closed, takes the steps, and waits until settling is
// over; at most for loadingBound, or until ctx is done. It reports whether it has done all that.
func awaitLoaded(ctx context.Context, synced []<-chan struct{}, steps ...func(context.Context)) bool {
	ctx, cancel := context.WithTimeout(ctx, loadingBound)
	defer cancel()
	for _, one := range synced {
		select {
		case <-one:
		case <-ctx.Done():
			return false
		}
	}
	for _, step := range steps {
		step(ctx)
	}
	select {
	case <-time.After(settling):
		return true
	case <-ctx.Done():
		return false
	}
}
