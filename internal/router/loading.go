package router

import (
	"context"
	"time"
)

const (
	// loadingBound is the longest time for which a router counts as loading: a source may never
	// have its objects, because the router has no right to read them.
	loadingBound = 5 * time.Minute
	// settling is the time after a load for which the router still counts as loading: conditions
	// are evaluated for all objects, and existing objects are delivered.
	settling = 10 * time.Second
)

// load tells Options.Loading when the router begins to fill its caches, and when they are full.
// With a state, a cut has the objects then: the first cut takes memory, too.
func (r *router) load(ctx context.Context, synced []<-chan struct{}) {
	loaded := r.opts.Loading()
	defer loaded()
	saved := func(context.Context) {}
	if r.State != nil {
		saved = r.State.Writer.AwaitCut
	}
	awaitLoaded(ctx, synced, saved)
}

// syncedSources returns the channels that are closed when the sources of the present configuration
// have their objects.
func (r *router) syncedSources() (all []<-chan struct{}) {
	for source := range r.Set.Plan.Config.Sources {
		all = append(all, r.Factory.Synced(source))
	}
	return all
}

// awaitLoaded waits until all channels are closed, saved returns, and settling is over; at most for
// loadingBound, or until ctx is done.
func awaitLoaded(ctx context.Context, synced []<-chan struct{}, saved func(context.Context)) {
	ctx, cancel := context.WithTimeout(ctx, loadingBound)
	defer cancel()
	for _, one := range synced {
		select {
		case <-one:
		case <-ctx.Done():
			return
		}
	}
	saved(ctx)
	select {
	case <-time.After(settling):
	case <-ctx.Done():
	}
}
