package worker

import (
	"context"
	"errors"
	"time"

	"github.com/deltarouter/deltarouter/internal/api"
	"github.com/deltarouter/deltarouter/internal/engine"
	"github.com/deltarouter/deltarouter/internal/fleet/roster"
	"github.com/deltarouter/deltarouter/internal/fleet/work"
	"github.com/deltarouter/deltarouter/internal/inspect"
	"github.com/deltarouter/deltarouter/pkg/informer"
)

// statusTimeout bounds the wait of the status for NATS.
const statusTimeout = time.Second

// errWorker is the answer to requests that a worker has no answer to.
var errWorker = errors.New("this process is a worker of the fleet: ask the leader, which router status shows")

// openAPI serves the status on listen.api, with the access rules of a member. A worker also works
// without: on the machine of a member with the same configuration, the address is in use.
func (w *worker) openAPI(ctx context.Context) {
	if w.plan.Config.Listen.API == "" {
		return
	}
	if err := w.startAPI(ctx); err != nil {
		w.log.Warn("the worker goes on without its API, which only router status of this worker needs", "listen.api", w.plan.Config.Listen.API, "err", err)
	}
}

func (w *worker) startAPI(ctx context.Context) error {
	listen := w.plan.Config.Listen
	cfg := api.ControlConfig{
		Addr: listen.API, Status: w.status, Checks: w.checks, Metrics: w.env.Metrics.Handler(), Log: w.log,
		Standby: func() error { return errWorker }, Promote: func(context.Context) error { return errWorker },
	}
	if listen.Access != "" { // it asks the cluster about the senders of requests
		client, err := informer.NewClient(w.plan.Config.Cluster, w.opts.Components.Policy)
		if err != nil {
			return err
		}
		w.onClose(func(context.Context) error { client.Close(); return nil })
		if err := engine.Secure(&cfg, listen, client, w.log); err != nil {
			return err
		}
	} else if err := engine.Secure(&cfg, listen, nil, w.log); err != nil {
		return err
	}
	server := api.NewControl(cfg)
	if err := server.Start(ctx); err != nil {
		return err
	}
	w.onClose(server.Close)
	// The worker is no member of the election, but its status shows the members.
	w.roster = roster.New(w.conn, w.id, w.log)
	reading, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() { defer close(ended); w.roster.Read(reading) }()
	w.onClose(func(context.Context) error { stop(); <-ended; return nil })
	return nil
}

// status returns the status for the API: the routes with the deltas in hand, the partitions that
// this worker owns of them, and their backlogs in NATS.
func (w *worker) status(ctx context.Context) api.Status {
	s := api.Status{Checks: w.checks(), Fleet: &api.FleetStatus{Name: w.conn.Names.Fleet(), Member: w.id, Role: "worker", NATS: w.conn.NATS.IsConnected(), Unsigned: w.conn.Workers == nil}}
	for _, m := range w.roster.All() {
		s.Fleet.Members = append(s.Fleet.Members, api.Member{
			Name: m.Name, Role: m.Role, Version: m.Version, Config: m.Config, Since: m.Since, Behind: m.Behind, Partitions: m.Partitions,
		})
		if m.Role == roster.Leader {
			s.Fleet.Leader = m.Name
		}
	}
	w.mu.Lock()
	opened := w.open
	w.mu.Unlock()
	if !opened { // the routes are set when the components are open
		return inspect.NewRights(w.plan).Show(ctx, s)
	}
	// NATS may not answer, which is a reason to look at the status.
	asking, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	now, owned := w.now(), w.owned()
	for token, r := range w.routes {
		shown := api.RouteStatus{Name: r.Name, Pending: now[r.Name].pending, Paused: now[r.Name].paused, Workers: &api.WorkersStatus{Partitions: owned[token]}}
		if oldest := now[r.Name].oldest; !oldest.IsZero() {
			shown.Oldest = &oldest
		}
		if n, err := work.Waiting(asking, w.conn, r.ID); err == nil {
			shown.Workers.Waiting = &n
		}
		s.Routes = append(s.Routes, shown)
	}
	return inspect.NewRights(w.plan).Show(ctx, s)
}
