package router

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/deltarouter/deltarouter/internal/api"
	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/internal/engine"
	"github.com/deltarouter/deltarouter/internal/kubestatus"
	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/informer"
)

// unfit has the routes that do not fit the schemas of the cluster, and are disabled.
type unfit struct {
	now atomic.Pointer[[]compile.Unfit]
}

// all returns them.
func (u *unfit) all() []compile.Unfit {
	if now := u.now.Load(); now != nil {
		return *now
	}
	return nil
}

// checks returns a check for /readyz and the status for each route. It does not make the router
// unready: the other routes run.
func (u *unfit) checks() (checks []api.Check) {
	for _, one := range u.all() {
		checks = append(checks, api.Check{Name: "routes/" + one.Route.Name, Message: one.String()})
	}
	return checks
}

// conditions returns the conditions for an operator.
func (u *unfit) conditions() (all []kubestatus.Condition) {
	for _, one := range u.all() {
		all = append(all, kubestatus.Condition{Reason: kubestatus.ConfigRejected, Subject: one.Route.Name, Message: "route " + one.Route.Name + ": " + one.String()})
	}
	return all
}

// disabled reports whether a route is one of them.
func (u *unfit) disabled(route string) bool {
	return slices.ContainsFunc(u.all(), func(one compile.Unfit) bool { return one.Route.Name == route })
}

// report reports the disabled routes after a load of the configuration.
func (u *unfit) report(now []compile.Unfit, m *metrics.Metrics, log *slog.Logger) {
	u.now.Store(&now)
	m.RouteDisabled.Reset()
	for i := range now {
		m.RouteDisabled.WithLabelValues(now[i].Route.Name).Set(1)
		log.Error("a route does not fit the schemas of the cluster", "route", now[i].Route.Name, "err", now[i].String())
	}
}

// schemaInterval is the interval at which routes that do not fit the schemas are tried again.
const schemaInterval = time.Minute

// schemaTimer tells when the schemas are compared again with the disabled routes.
type schemaTimer struct {
	timer.Timer

	clock timer.Clock
	due   chan struct{}
}

// newSchemaTimer returns a timer that is set.
func newSchemaTimer(clock timer.Clock) schemaTimer {
	t := schemaTimer{clock: clock, due: make(chan struct{}, 1)}
	t.Timer = t.clock.NewTimer(func() { t.due <- struct{}{} }) // it is set after due was read
	t.set()
	return t
}

func (t schemaTimer) set() { t.Set(t.clock.Now().Add(schemaInterval)) }

// fitAgain reports whether disabled routes fit the schemas of the cluster now, so that a reload
// enables them.
func (u *unfit) fitAgain(ctx context.Context, opts *Options, client *informer.Client) bool {
	disabled := u.all()
	if len(disabled) == 0 {
		return false
	}
	in := inputOf(*opts)
	in.Unfit = u.disabled
	p, problems := opts.plan(ctx, in, func(config.Cluster) (*informer.Client, error) { return client, nil })
	if len(problems) > 0 || len(p.Unfit) >= len(disabled) {
		return false
	}
	opts.Log.Info("reloading, because disabled routes fit the schemas of the cluster again", "routes", len(disabled)-len(p.Unfit))
	return true
}

// leavesOut returns which routes a start may leave out: all, if the state folder is that of an
// earlier run, so that the configuration fitted once; else none.
func leavesOut(cfg *config.Config) func(route string) bool {
	if cfg.State.Dir == "" {
		return nil
	}
	if _, err := os.Stat(filepath.Join(cfg.State.Dir, engine.StateFile)); err != nil {
		return nil
	}
	return func(string) bool { return true }
}
