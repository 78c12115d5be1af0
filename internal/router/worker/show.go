package worker

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/deltarouter/deltarouter/internal/api"
	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/internal/inspect"
	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/internal/pipeline"
	"github.com/deltarouter/deltarouter/pkg/config"
)

// startProbes serves the probes while the configuration is being compiled, which can take longer
// than a liveness probe waits. If the address is in use, open reports it later. The caller calls
// end before the worker is opened.
func startProbes(ctx context.Context, opts *Options, cfg *config.Config) (end func()) {
	if cfg == nil || cmp.Or(opts.Probes, cfg.Listen.Probes) == "" {
		return func() {}
	}
	m := metrics.New()
	m.SetBuildInfo(opts.Version)
	compiling := func() []api.Check {
		return []api.Check{{Name: "start", Holds: true, Message: "the configuration is being compiled"}}
	}
	server := api.New(api.Config{
		Addr: cmp.Or(opts.Probes, cfg.Listen.Probes), Metrics: m.Handler(), Checks: compiling, Log: opts.Log,
		Role: func() string { return "starting: the configuration is being compiled" },
	})
	_ = server.Start(ctx)
	return func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		_ = server.Close(ctx) // a request that was cut off is sent again
	}
}

// openProbes serves /healthz, /readyz and /metrics.
func (w *worker) openProbes(ctx context.Context) error {
	addr := cmp.Or(w.opts.Probes, w.plan.Config.Listen.Probes)
	if addr == "" {
		return nil
	}
	w.probes = api.New(api.Config{Addr: addr, Metrics: w.env.Metrics.Handler(), Checks: w.checks, Log: w.log})
	if err := w.probes.Start(ctx); err != nil {
		return err
	}
	w.onClose(w.probes.Close)
	return nil
}

// checks returns the checks for /readyz.
func (w *worker) checks() (checks []api.Check) {
	w.mu.Lock()
	opened := w.open
	w.mu.Unlock()
	if !opened {
		return []api.Check{{Name: "fleet", Holds: true, Message: "waiting for NATS, or for the leader to make its buckets there"}}
	}
	// Only the connection makes a worker unready: the other checks name parts that wait.
	connection := api.Check{Name: "fleet", OK: true, Holds: true}
	if err := w.conn.Trouble(); err != nil {
		connection.OK, connection.Message = false, err.Error()
	}
	checks = append(checks, connection)
	if text := w.conn.Refused.Recent(time.Now()); text != "" {
		checks = append(checks, api.Check{Name: "fleet/refused", Message: text})
	}
	for token := range w.owner.Foreign() {
		checks = append(checks, api.Check{
			Name:    "routes/" + w.routes[token].Name,
			Message: "not handled: the leader has another configuration of the route; give both the same one",
		})
	}
	checks = append(checks, includeChecks(w.plan)...)
	checks = append(checks, secretChecks(w.plan.Config)...)
	// Each partition has a pipeline of its own; now sums them up by route.
	now := w.now()
	for _, name := range w.names() {
		r := now[name]
		if r.paused != "" {
			checks = append(checks, api.Check{Name: "routes/" + name, Message: "paused: " + r.paused})
		}
		for sink, why := range r.unavailable {
			checks = append(checks, api.Check{Name: "sinks/" + sink, Message: "unavailable: " + why})
		}
	}
	return checks
}

// includeChecks returns the checks of the included files with mistakes.
func includeChecks(p *compile.Plan) (checks []api.Check) {
	for i := range p.Rejected {
		one := &p.Rejected[i]
		checks = append(checks, api.Check{Name: "includes/" + one.Fragment.Scope.Prefix, Message: one.String()})
	}
	return checks
}

// reportIncludes logs the mistakes of the included files.
func (w *worker) reportIncludes() {
	for i := range w.plan.Rejected {
		one := &w.plan.Rejected[i]
		w.log.Error("an included file was rejected", "include", one.Fragment.Scope.Prefix, "former", one.Former, "err", one.Problems[0].Error(), "mistakes", len(one.Problems))
	}
}

// routeState is the state of a route in all partitions of this worker.
type routeState struct {
	pending     int
	oldest      time.Time
	paused      string
	unavailable map[string]string // by sink: the reason
}

// now returns the state of each route by its name.
func (w *worker) now() map[string]routeState {
	states := map[string]routeState{}
	for _, s := range w.all() {
		name := s.route.Name
		state := states[name]
		for _, p := range s.pipeline.Status() {
			state.pending += p.Pending
			if !p.Oldest.IsZero() && (state.oldest.IsZero() || p.Oldest.Before(state.oldest)) {
				state.oldest = p.Oldest
			}
			state.paused = cmp.Or(state.paused, p.Paused)
		}
		for _, down := range s.pipeline.Unavailable() {
			if state.unavailable == nil {
				state.unavailable = map[string]string{}
			}
			state.unavailable[down.Name] = fmt.Sprintf("since %s: %s", down.Since.UTC().Format(time.RFC3339), down.Reason)
		}
		states[name] = state
	}
	return states
}

// all returns the sessions.
func (w *worker) all() []*session {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := make([]*session, 0, len(w.sessions))
	for s := range w.sessions {
		all = append(all, s)
	}
	return all
}

// count sets the gauges of the routes before a scrape.
func (w *worker) count() {
	w.mu.Lock()
	opened := w.open
	w.mu.Unlock()
	if !opened {
		return
	}
	// A route without a partition here has gauges, too: they fall to zero with its last partition.
	now, m, owned := w.now(), w.env.Metrics, w.owned()
	for token, r := range w.routes {
		m.Fleet.Owned.WithLabelValues(r.Name).Set(float64(owned[token]))
		state, age, paused := now[r.Name], 0.0, 0.0
		if !state.oldest.IsZero() {
			age = max(0, w.env.Clock.Now().Sub(state.oldest).Seconds())
		}
		if state.paused != "" {
			paused = 1
		}
		m.QueueDepth.WithLabelValues(r.Name).Set(float64(state.pending))
		m.OldestPending.WithLabelValues(r.Name).Set(age)
		m.RoutePaused.WithLabelValues(r.Name).Set(paused)
		for _, sink := range r.Sinks {
			down := 0.0
			if state.unavailable[sink.Name] != "" {
				down = 1
			}
			m.SinkUnavailable.WithLabelValues(r.Name, sink.Name).Set(down)
		}
	}
}

// owned returns the number of partitions that this worker owns, by the token of the route.
func (w *worker) owned() map[string]int {
	n := map[string]int{}
	for _, partition := range w.owner.Partitions() {
		token, _, _ := strings.Cut(partition, ".")
		n[token]++
	}
	return n
}

// resumeAfter is how long a route stays paused that a sink has paused: nobody can resume the routes
// of a worker.
const resumeAfter = time.Minute

// resume resumes paused routes from time to time.
func (w *worker) resume() {
	if now := time.Now(); now.Sub(w.resumed) > resumeAfter {
		w.resumed = now
		for _, s := range w.all() {
			if slices.ContainsFunc(s.pipeline.Status(), func(p pipeline.Status) bool { return p.Paused != "" }) {
				_ = s.pipeline.Resume(s.route.Name) // it may have been resumed meanwhile
			}
		}
	}
}

// secretChecks returns the checks of the secrets that a worker needs: it must not have the keys of
// the members.
func secretChecks(cfg *config.Config) []api.Check {
	return slices.DeleteFunc(inspect.SecretChecks(cfg), func(c api.Check) bool {
		key, _, _ := strings.Cut(c.Message, " ")
		return isMembersKey(c.Name + "." + key)
	})
}

// isMembersKey reports whether a path in the configuration is a key that no worker has.
func isMembersKey(path string) bool {
	return path == "fleet.keys.members" || path == "fleet.keys.accept.members"
}
