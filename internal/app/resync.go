package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/deltarouter/deltarouter/pkg/api"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/informer"
)

// resync puts what the cache holds through once more, or has it compared with the API server. It asks the factory and the pipeline
// alone, so that it may run while the configuration is reloaded.
func (r *router) resync(ctx context.Context, ask api.Resync) (done api.Resynced, err error) {
	sources, err := r.resyncSources(ask)
	if err != nil {
		return done, err
	}
	for _, name := range sources {
		one, err := r.resyncSource(ctx, name, ask)
		switch {
		case errors.Is(err, informer.ErrNotRunning) || ctx.Err() != nil:
			return done, err
		case err != nil:
			one.Error = err.Error()
		}
		done.Sources = append(done.Sources, one)
		r.log.Info("resynced, as asked by the API", "source", name, "route", ask.Route, "relist", ask.Relist,
			"objects", one.Objects, "taken", one.Taken, "deltas", one.Deltas, "problem", one.Error)
	}
	return done, nil
}

// resyncSources returns the sources that are meant. The error says that nothing is, and what to do.
func (r *router) resyncSources(ask api.Resync) (sources []string, err error) {
	for _, s := range r.factory.Statuses() {
		sources = append(sources, s.Source)
	}
	if ask.Source != "" && !slices.Contains(sources, ask.Source) {
		return nil, fmt.Errorf("there is no source %q%s", ask.Source, config.Suggest(ask.Source, sources))
	}
	if ask.Route != "" {
		if sources = r.pipeline.SourcesOf(ask.Route); sources == nil {
			var routes []string
			for _, s := range r.pipeline.Status() {
				routes = append(routes, s.Name)
			}
			return nil, fmt.Errorf("there is no route %q%s", ask.Route, config.Suggest(ask.Route, routes))
		}
		if err := refuseFed(r.objects.Load().config, ask.Route); err != nil && !ask.Relist {
			return nil, err
		}
	}
	if ask.Source != "" {
		if !slices.Contains(sources, ask.Source) {
			return nil, fmt.Errorf("route %q does not get anything from source %q%s", ask.Route, ask.Source, config.Suggest(ask.Source, sources))
		}
		sources = []string{ask.Source}
	}
	if ask.Route != "" || ask.Relist {
		return sources, nil
	}
	sources = slices.DeleteFunc(sources, func(s string) bool { return len(r.pipeline.Takers(s, event.Sync)) == 0 })
	if len(sources) == 0 {
		return nil, errors.New("no route has sync in its on: name a route, which then gets everything whatever its on is")
	}
	return sources, nil
}

func (r *router) resyncSource(ctx context.Context, name string, ask api.Resync) (api.ResyncedSource, error) {
	done := api.ResyncedSource{Name: name}
	if status, ok := r.factory.Status(name); ok && !status.Synced {
		done.Unsynced = status.Reason
	}
	if ask.Relist {
		found, err := r.factory.Relist(ctx, name)
		done.Objects, done.Deltas = found.Objects, found.Deltas
		return done, err
	}
	var admit informer.Admit
	if ask.Route != "" {
		admit = func(ctx context.Context, d *event.Delta) (func(), error) {
			commit, err := r.pipeline.RemindTo(ctx, ask.Route, d)
			if err != nil {
				err = fmt.Errorf("route %q: %w", ask.Route, err)
			}
			return commit, err
		}
	}
	count, err := r.factory.Resync(ctx, name, admit)
	done.Objects, done.Taken = count.Objects, count.Taken
	return done, err
}

// refuseFed says of a route that gets events that objects cannot be put through it, and what to do.
func refuseFed(cfg *config.Config, name string) error {
	for _, route := range cfg.Routes {
		if route.Name == name && len(route.FedBy) > 0 {
			by := strings.Join(route.FedBy, ", ")
			return fmt.Errorf("route %q gets what other routes make of objects, not objects: name one that feeds it, which are %s", name, by)
		}
	}
	return nil
}
