package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/deltarouter/deltarouter/internal/pipeline"
	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/informer"
)

// RescansOf returns the tasks that rescan the objects of routes with a condition: when it is
// necessary, and at the interval reevaluate.
func (e *Engine) RescansOf(s *Set) map[string]func(context.Context) {
	all := make(map[string]func(context.Context))
	for i := range s.Plan.Routes {
		p := &s.Plan.Routes[i]
		if p.WhenProgram == nil {
			continue
		}
		lo := rescanner{pipeline: e.Pipeline, factory: e.Factory, log: e.Log, route: p.Name, sources: p.From, lookups: p.Lookups(), reevaluate: p.Reevaluate}
		all[p.Name] = lo.run
	}
	return all
}

// rescanner rescans all objects of one route.
type rescanner struct {
	log              *slog.Logger
	pipeline         *pipeline.Pipeline
	factory          *informer.Factory
	route            string
	sources, lookups []string
	reevaluate       time.Duration
}

// run rescans once if that is due, or if a reevaluation may have been missed, and then at each
// reevaluation, until ctx is done.
func (l *rescanner) run(ctx context.Context) {
	for _, source := range slices.Concat(l.lookups, l.sources) {
		select {
		case <-l.factory.Synced(source):
		case <-ctx.Done():
			return
		}
	}
	looked := false
	for l.pipeline.NeedsRescan(l.route) {
		if looked = l.tryRound(ctx); looked {
			break
		}
		if timer.Sleep(ctx, retryRescan) != nil {
			return
		}
	}
	// Without this rescan, a router that is restarted more often than that would never reevaluate.
	// Changes that happened while the router was down arrive first.
	if l.reevaluate > 0 && !looked && timer.Sleep(ctx, caughtUpAfter) == nil {
		l.tryRound(ctx)
	}
	l.wait(ctx)
}

// wait evaluates the condition for all objects at each reevaluation, and for missed objects at
// once, until ctx is done.
func (l *rescanner) wait(ctx context.Context) {
	misses := l.pipeline.Misses(l.route)
	if misses == nil {
		return // the route is being removed
	}
	behind := true // a reload may have ended another task on the way
	for due := l.nextReevaluation(); ctx.Err() == nil; {
		if behind {
			select {
			case <-due: // a team may have missed objects all the time
				l.tryRound(ctx)
				due = l.nextReevaluation()
			default:
				behind = l.catchUp(ctx, misses)
			}
			continue
		}
		select {
		case <-due:
			l.tryRound(ctx)
			due = l.nextReevaluation()
		case <-misses.Woken():
			behind = true
		case <-ctx.Done():
		}
	}
}

func (l *rescanner) nextReevaluation() <-chan time.Time {
	if l.reevaluate <= 0 {
		return nil
	}
	return time.After(l.reevaluate)
}

// catchUp evaluates the condition for a missed object, or for all if there were too many to
// remember. It takes 1/rescanShare of the time of the watches. It returns false if none is missed.
func (l *rescanner) catchUp(ctx context.Context, misses *pipeline.Misses) (behind bool) {
	if l.pipeline.NeedsRescan(l.route) && !l.tryRound(ctx) {
		_ = timer.Sleep(ctx, retryRescan) // the caller checks ctx
		return true
	}
	next, ok := misses.Next()
	misses.Caught()
	if !ok {
		return false
	}
	done, ok := misses.Turn(ctx)
	if !ok {
		return true
	}
	defer done()
	began := time.Now()
	err := l.factory.ResyncObject(ctx, next.Source, next.Key, next.UID, began, l.admit)
	pause := time.Since(began) * (rescanShare - 1)
	if err != nil || !misses.Done(next) {
		pause = retryRescan
	}
	l.report(ctx, next.Key.String(), err)
	_ = timer.Sleep(ctx, pause) // the caller checks ctx
	return true
}

func (l *rescanner) admit(ctx context.Context, d *event.Delta) (event.Admission, error) {
	return l.pipeline.AdmitTo(ctx, l.route, d)
}

func (l *rescanner) tryRound(ctx context.Context) bool {
	err := l.round(ctx)
	l.report(ctx, "all", err)
	return err == nil
}

// report logs a failed evaluation of the condition for these objects.
func (l *rescanner) report(ctx context.Context, objects string, err error) {
	if err != nil && ctx.Err() == nil && !errors.Is(err, informer.ErrNotRunning) {
		l.log.Warn("a condition could not be evaluated; retrying", "route", l.route, "objects", objects, "err", err)
	}
}

// round rescans all objects once, slowly enough for the watches to continue meanwhile.
func (l *rescanner) round(ctx context.Context) error {
	rescan, err := l.pipeline.Rescan(l.route) //nolint:contextcheck // the keys of lanes are evaluated at once
	if err != nil {
		return err
	}
	began, n := time.Now(), 0
	pace := func(ctx context.Context) {
		if n++; n%rescanStride == 0 {
			// the caller checks ctx
			_ = timer.Sleep(ctx, time.Since(began)*(rescanShare-1))
			began = time.Now()
		}
	}
	for _, source := range l.sources {
		if _, err := l.factory.ResyncPaced(ctx, source, rescan.Admit, pace); err != nil {
			return fmt.Errorf("source %q: %w", source, err)
		}
	}
	rescan.End(func(source string) bool { //nolint:contextcheck // the keys of lanes are evaluated at once
		status, ok := l.factory.Status(source)
		return ok && status.Synced
	})
	return nil
}
