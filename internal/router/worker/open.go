package worker

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/deltarouter/deltarouter/internal/api"
	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/internal/engine"
	"github.com/deltarouter/deltarouter/internal/fleet"
	"github.com/deltarouter/deltarouter/internal/fleet/consume"
	"github.com/deltarouter/deltarouter/internal/fleet/lookup"
	"github.com/deltarouter/deltarouter/internal/fleet/owner"
	"github.com/deltarouter/deltarouter/internal/fleet/roster"
	"github.com/deltarouter/deltarouter/internal/fleet/values"
	"github.com/deltarouter/deltarouter/internal/fleet/work"
	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/informer"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// worker is a process of a fleet with one configuration.
type worker struct {
	opts Options
	plan *compile.Plan
	id   string
	log  *slog.Logger

	env    *engine.Env
	set    *engine.Set
	conn   *fleet.Conn
	values *values.Values
	codec  *work.Codec
	owner  *owner.Owner
	roster *roster.Roster    // nil: there is no API
	routes map[string]*route // by token
	probes *api.Server       // nil: there are none

	file    file
	resumed time.Time // when paused routes were resumed last
	closers []func(context.Context) error

	mu       sync.Mutex
	open     bool // the owner exists
	sessions map[*session]bool
}

// route is a route with workers.
type route struct {
	spec.Settings

	hash    string // of its configuration
	pending int
}

// workersOf returns the routes with workers.
func workersOf(p *compile.Plan) (routes []compile.Route) {
	for i := range p.Routes {
		if p.Routes[i].Workers != nil {
			routes = append(routes, p.Routes[i])
		}
	}
	return routes
}

// reduced returns the part of a plan that a worker opens: the routes with workers, their handlers
// and their sinks, without the state folder, which is the leader's.
func reduced(p *compile.Plan) *compile.Plan {
	small, cfg := *p, *p.Config
	small.Routes, small.Config = workersOf(p), &cfg
	handlers, sinks := map[string]*config.Component{}, map[string]*config.Component{}
	for i := range small.Routes {
		r := &small.Routes[i]
		if r.Handler != "" {
			handlers[r.Handler] = cfg.Handlers[r.Handler]
		}
		for j := range r.To {
			sinks[r.To[j].Sink] = cfg.Sinks[r.To[j].Sink]
		}
	}
	cfg.Handlers, cfg.Sinks, cfg.State.Dir = handlers, sinks, ""
	return &small
}

// open opens the handlers, the sinks and the connection to the fleet.
func open(ctx context.Context, opts Options, p *compile.Plan) (_ *worker, err error) {
	w := &worker{opts: opts, plan: p, id: identity(), log: opts.Log, codec: work.NewCodec(), routes: map[string]*route{}, sessions: map[*session]bool{}}
	w.env = &engine.Env{Components: opts.Components, Log: opts.Log, Metrics: metrics.New(), Clock: timer.Real(), Stdout: opts.Stdout, Cache: opts.Cache}
	w.env.Metrics.SetBuildInfo(opts.Version)
	w.env.Metrics.ConfigHash.WithLabelValues(p.Config.Hash).Set(1)
	w.env.Metrics.BeforeScrape(w.count)
	w.env.Metrics.SetSecrets(func() int { return len(secretChecks(p.Config)) })
	// close ends the steps that were done, in reverse order.
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close(ctx))
		}
	}()
	// The probes come first, because the connection may wait for NATS, and the components for the
	// leader. The owner needs the routes of the set.
	if err := w.openProbes(ctx); err != nil {
		return nil, err
	}
	if err := w.connect(ctx); err != nil {
		return nil, err
	}
	if err := w.openSet(ctx); err != nil {
		return nil, err
	}
	if err := w.openOwner(ctx); err != nil {
		return nil, err
	}
	w.openAPI(ctx)
	return w, nil
}

func (w *worker) onClose(end func(context.Context) error) { w.closers = append(w.closers, end) }

// close closes everything, the last first.
func (w *worker) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	var errs []error
	for _, end := range slices.Backward(w.closers) {
		errs = append(errs, end(ctx))
	}
	return errors.Join(errs...)
}

// connect connects to NATS, and waits for it: a worker can do nothing without it.
func (w *worker) connect(ctx context.Context) (err error) {
	if w.conn, err = fleet.ConnectWorker(ctx, w.plan.Config.Fleet, "deltarouter worker "+w.id, w.log); err != nil {
		return err
	}
	w.onClose(func(context.Context) error { return w.conn.Close() })
	w.env.Metrics.SetRefused(fleet.RefusedKinds(), w.conn.Refused.Count)
	if err := w.conn.Ready(ctx); err != nil {
		return err
	}
	w.values = values.New(context.WithoutCancel(ctx), w.conn, w.env.Clock, w.log)
	w.onClose(func(context.Context) error { w.values.Close(); return nil })
	return nil
}

// openSet opens the handlers and sinks.
func (w *worker) openSet(ctx context.Context) error {
	small := reduced(w.plan)
	if needsCluster(small.Config) {
		client, err := informer.NewClient(small.Config.Cluster, w.opts.Components.Policy)
		if err != nil {
			return fmt.Errorf("cluster: %w", err)
		}
		w.onClose(func(context.Context) error { client.Close(); return nil })
		w.env.API = &plugins.API{URL: client.Host(), Client: client.HTTP()}
	}
	w.env.Memories = engine.NewMemories(nil, w.env.Clock)
	w.env.Memories.Share(func(handler string) (plugins.KV, error) { return w.values.Open(ctx, handler) })
	w.env.Lookup = func(handler string) plugins.Lookup { return lookup.Remote(w.conn, handler) }
	// the kv of handlers is in a bucket that the leader makes
	if _, err := w.conn.Bucket(ctx, w.conn.Names.Values(), w.waiting); err != nil {
		return err
	}
	w.set = engine.NewSet(w.env, small)
	w.onClose(func(ctx context.Context) error { return w.set.CloseUnused(ctx, &engine.Set{}) })
	if err := w.set.OpenComponents(ctx, &engine.Set{}); err != nil {
		return err
	}
	// The hash is made of the whole configuration, as on the leader.
	for i, r := range w.set.WorkerRoutes() {
		configured := small.Routes[i].Route
		hash, err := work.HashOf(w.plan.Config, configured)
		if err != nil {
			return err
		}
		w.routes[fleet.Token(r.ID)] = &route{Settings: r, hash: hash, pending: configured.Workers.Pending}
	}
	return nil
}

// needsCluster reports whether a sink writes to the cluster.
func needsCluster(cfg *config.Config) bool {
	for _, s := range cfg.Sinks {
		if s.Kind == "kubernetes" {
			return true
		}
	}
	return false
}

// openOwner opens the owner of partitions.
func (w *worker) openOwner(ctx context.Context) error {
	own, err := w.conn.Bucket(ctx, w.conn.Names.Owners(), w.waiting)
	if err != nil {
		return err
	}
	members, err := w.conn.Bucket(ctx, w.conn.Names.Members(), w.waiting)
	if err != nil {
		return err
	}
	hashes := map[string]string{}
	for token, r := range w.routes {
		hashes[token] = r.hash
	}
	w.owner = owner.New(owner.Config{
		Own: own, Members: members, Worker: w.id, Version: w.opts.Version, Hash: w.plan.Config.Hash, Routes: hashes, TTL: ttl(w.plan.Config.Fleet), Hold: w.hold,
		Empty: w.empty, Log: w.log, Complaints: w.conn.Complaints,
	})
	w.mu.Lock()
	w.open = true
	w.mu.Unlock()
	return nil
}

// ttl is the time after which the partitions of a worker that is gone have another owner.
func ttl(f *config.Fleet) time.Duration { return f.Lease / 3 }

// waiting logs that the leader has not made its buckets yet. A worker that comes first waits.
func (w *worker) waiting(err error) {
	w.log.Info("waiting for the leader of the fleet to make its buckets in NATS", "err", err)
}

// empty reports whether a generation of a route has no messages.
func (w *worker) empty(ctx context.Context, token string, generation uint64) (bool, error) {
	return consume.Empty(ctx, w.conn.NATS, w.conn.Names.Work(), w.conn.Names.WorkGeneration(token, generation))
}

var notInKeys = regexp.MustCompile(`[^-_a-zA-Z0-9]`)

// identity returns a name that no other process has, for keys of buckets.
func identity() string {
	host, _ := os.Hostname()
	var random [4]byte
	_, _ = rand.Read(random[:])
	return notInKeys.ReplaceAllString(host, "-") + "-" + hex.EncodeToString(random[:])
}

// names returns the names of the routes, in order.
func (w *worker) names() []string {
	var names []string
	for _, token := range slices.Sorted(maps.Keys(w.routes)) {
		names = append(names, w.routes[token].Name)
	}
	slices.Sort(names)
	return names
}
