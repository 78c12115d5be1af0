package router

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/deltarouter/deltarouter/internal/kubestatus"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/informer"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// eventInterval is the interval at which the conditions of the router are collected.
const eventInterval = 5 * time.Second

// podEvents creates Kubernetes Events on the pod of the router. All methods of nil do nothing.
type podEvents struct {
	reporter *kubestatus.Reporter
	log      *slog.Logger
	failure  string // the last one that was logged
}

// newPodEvents returns nil if the configuration does not ask for Events, or if the environment
// names no pod.
func newPodEvents(cluster config.Cluster, client *informer.Client, opts Options) *podEvents {
	if !cluster.Events {
		return nil
	}
	pod, ok := kubestatus.PodFromEnv()
	if !ok {
		opts.Log.Warn("no Kubernetes Events are created (cluster.events), because POD_NAMESPACE and POD_NAME are not set: set them from metadata.namespace and metadata.name of the pod")
		return nil
	}
	api := &plugins.API{URL: client.Host(), Client: client.HTTP()}
	return &podEvents{reporter: kubestatus.NewPodEvents(pod, api, opts.clock().Now), log: opts.Log}
}

// rejected reports that the router does not start, and why.
func (e *podEvents) rejected(ctx context.Context, problems config.Problems) {
	if e == nil {
		return
	}
	e.report(ctx, []kubestatus.Condition{
		{Reason: kubestatus.ConfigRejected, Message: "the configuration was rejected, and the router does not start: " + firstOf(textsOf(problems))},
	})
}

// observe records the counts at the start, such as those of restored routes.
func (e *podEvents) observe(conditions []kubestatus.Condition) {
	if e != nil {
		e.reporter.Observe(conditions)
	}
}

// run reports conditions until ctx is done.
func (e *podEvents) run(ctx context.Context, conditions func() []kubestatus.Condition) {
	if e == nil {
		return
	}
	tick := time.NewTicker(eventInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			e.report(ctx, conditions())
		}
	}
}

// report logs each failure once, as long as it is the same.
func (e *podEvents) report(ctx context.Context, conditions []kubestatus.Condition) {
	err := e.reporter.Report(ctx, conditions)
	if ctx.Err() != nil {
		return
	}
	if err == nil {
		e.failure = ""
		return
	}
	if err.Error() == e.failure {
		return
	}
	e.failure = err.Error()
	if errors.Is(err, kubestatus.ErrForbidden) {
		e.log.Warn("no Kubernetes Events are created: the router may not create events in the namespace of its pod; grant it, or remove cluster.events", "err", err)
		return
	}
	e.log.Warn("a Kubernetes Event was not created; it is tried again", "err", err)
}

// conditions returns the conditions for an operator. The reason for the pause of a route and the
// errors of dead letters are left out, because handlers write them, and they may repeat objects.
func (r *router) conditions() (all []kubestatus.Condition) {
	if c := r.reloads.check(); !c.OK {
		all = append(all, kubestatus.Condition{Reason: kubestatus.ConfigRejected, Message: c.Message})
	}
	all = append(all, r.rejected.conditions()...)
	all = append(all, r.unfit.conditions()...)
	// Only a refused source needs an administrator; other failures of sources pass.
	for _, s := range r.Factory.Statuses() {
		if s.Refused {
			all = append(all, kubestatus.Condition{
				Reason: kubestatus.SourceRefused, Subject: s.Source, Message: fmt.Sprintf("source %q receives no changes: %s", s.Source, s.Reason),
			})
		}
	}
	// The subject is the id: it stays the same when the route gets another name.
	for _, route := range r.Pipeline.Status() {
		if route.Paused != "" {
			all = append(all, kubestatus.Condition{
				Reason: kubestatus.RoutePaused, Subject: route.ID,
				Message: fmt.Sprintf("route %q is paused, and its deltas wait: router status shows the reason, router resume continues it", route.Name),
			})
		}
		if n := r.Metrics.CountDeadLettered(route.Name); n > 0 {
			all = append(all, kubestatus.Condition{
				Reason: kubestatus.DeadLetters, Subject: route.ID, Count: n,
				Message: fmt.Sprintf("deltas of route %q that could not be delivered since the router started: %.0f; router dlq list shows those that are kept", route.Name, n),
			})
		}
	}
	return all
}
