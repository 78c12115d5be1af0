package router

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/deltarouter/deltarouter/internal/api"
	"github.com/deltarouter/deltarouter/internal/inspect"
	"github.com/deltarouter/deltarouter/internal/pipeline"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/informer"
)

// resyncer does requests of the API on running routes. It has no field that a reload replaces, so
// it may work during a reload.
type resyncer struct {
	factory  *informer.Factory
	pipeline *pipeline.Pipeline
	taps     *inspect.Taps
	objects  *inspect.Current
	log      *slog.Logger
}

// resync emits the cached objects once more, or compares them with the API server.
func (r *resyncer) resync(ctx context.Context, ask api.Resync) (done api.Resynced, err error) {
	if err := r.objects.Load().Resyncing(ctx, ask); err != nil {
		return done, err
	}
	sources, err := r.sources(ask)
	if err != nil {
		return done, err
	}
	done.Repeats = r.pipeline.Repeats(ask.Route)
	for _, name := range sources {
		one, err := r.source(ctx, name, ask)
		if errors.Is(err, informer.ErrNotRunning) || ctx.Err() != nil {
			return done, err
		}
		if err != nil { // the other sources are resynced nevertheless
			one.Error = err.Error()
		}
		done.Sources = append(done.Sources, one)
		if ask.DryRun {
			continue
		}
		r.log.Info("resynced on a request to the API", "source", name, "route", ask.Route, "relist", ask.Relist,
			"objects", one.Objects, "taken", one.Taken, "deltas", one.Deltas, "err", one.Error)
	}
	return done, nil
}

// sources returns the requested sources. The error says that there are none, and the remedy.
func (r *resyncer) sources(ask api.Resync) (sources []string, err error) {
	for _, s := range r.factory.Statuses() {
		sources = append(sources, s.Source)
	}
	// An unknown name is reported before a combination that makes no sense.
	if ask.Source != "" && !slices.Contains(sources, ask.Source) {
		return nil, fmt.Errorf("there is no source %q%s", ask.Source, config.Suggest(ask.Source, sources))
	}
	if ask.DryRun && (ask.Route == "" || ask.Relist) {
		return nil, errors.New("a dry run needs a route and cannot relist: name a route, and leave relist out")
	}
	if ask.Route != "" {
		if sources = r.pipeline.SourcesOf(ask.Route); sources == nil {
			return nil, r.noRoute(ask.Route)
		}
		if err := refuseFed(r.objects.Load().Config(), ask.Route); err != nil && !ask.Relist {
			return nil, err
		}
	}
	if ask.Source != "" {
		if !slices.Contains(sources, ask.Source) {
			return nil, fmt.Errorf("route %q receives no deltas of source %q%s", ask.Route, ask.Source, config.Suggest(ask.Source, sources))
		}
		sources = []string{ask.Source}
	}
	// A named route gets all objects, and a list is compared with the cache: neither needs sync in
	// the ops of a route.
	if ask.Route != "" || ask.Relist {
		return sources, nil
	}
	sources = slices.DeleteFunc(sources, func(s string) bool { return !r.pipeline.Takes(s, event.Sync, false) })
	if len(sources) == 0 {
		return nil, errors.New("no route has sync in its ops: name a route, which then receives all objects regardless of its ops")
	}
	return sources, nil
}

// noRoute says that there is no route of a name, and suggests one.
func (r *resyncer) noRoute(name string) error {
	var routes []string
	for _, s := range r.pipeline.Status() {
		routes = append(routes, s.Name)
	}
	return fmt.Errorf("there is no route %q%s", name, config.Suggest(name, routes))
}

// Pause implements [api.Pauser].
func (r *resyncer) Pause(route string, until time.Time) error {
	switch err := r.pipeline.Pause(route, until); {
	case errors.Is(err, pipeline.ErrNoRoute):
		return r.noRoute(route)
	case err != nil:
		return fmt.Errorf("route %q: %w", route, err)
	}
	log := r.log.With("route", route)
	if !until.IsZero() {
		log = log.With("until", until)
	}
	log.Warn("route paused on a request to the API")
	return nil
}

// Resume implements [api.Pauser].
func (r *resyncer) Resume(route string) error {
	switch err := r.pipeline.Resume(route); {
	case errors.Is(err, pipeline.ErrNoRoute):
		return r.noRoute(route)
	case err != nil:
		return fmt.Errorf("route %q: %w", route, err)
	}
	r.log.Info("route resumed on a request to the API", "route", route)
	return nil
}

func (r *resyncer) source(ctx context.Context, name string, ask api.Resync) (api.ResyncedSource, error) {
	done := api.ResyncedSource{Name: name}
	if status, ok := r.factory.Status(name); ok && !status.Synced {
		done.Unsynced = status.Reason
	}
	if ask.Relist {
		found, err := r.factory.Relist(ctx, name)
		done.Objects, done.Deltas = found.Objects, found.Deltas
		return done, err
	}
	// Without a route, the deltas take the usual way to all routes.
	var admit informer.Admit
	if ask.DryRun { // nothing is admitted, so Resync itself counts none as taken
		admit = func(ctx context.Context, d *event.Delta) (event.Admission, error) {
			wants, err := r.pipeline.Wants(ctx, ask.Route, d)
			if wants {
				done.Taken++
			}
			return nil, err
		}
	} else if ask.Route != "" {
		admit = func(ctx context.Context, d *event.Delta) (event.Admission, error) {
			r.taps.OfferThrough(d, ask.Route)
			commit, err := r.pipeline.RemindTo(ctx, ask.Route, d)
			if err != nil {
				err = fmt.Errorf("route %q: %w", ask.Route, err)
			}
			return commit, err
		}
	}
	count, err := r.factory.Resync(ctx, name, admit)
	done.Objects, done.Taken = count.Objects, done.Taken+count.Taken
	return done, err
}

// refuseFed says that objects cannot be resynced to a downstream route, and the remedy.
func refuseFed(cfg *config.Config, name string) error {
	for _, route := range cfg.Routes {
		if route.Name == name && len(route.Upstream) > 0 {
			by := strings.Join(route.Upstream, ", ")
			return fmt.Errorf("route %q receives events of other routes, not objects: name one of its upstream routes: %s", name, by)
		}
	}
	return nil
}
