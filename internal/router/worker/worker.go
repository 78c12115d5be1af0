// Package worker runs the handlers and the sinks of routes with workers, for the partitions that
// this process owns. It watches no objects: the deltas come from the leader of the fleet, by way of
// NATS.
//
// The configuration is that of the leader. A changed file replaces everything: the partitions are
// handed over and taken again with the new configuration.
package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/internal/config/files"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/informer"
)

// Options has the settings of the command line.
type Options struct {
	Config       string // path of the configuration
	Components   compile.Components
	Version      string
	Log          *slog.Logger
	Stdout       io.Writer     // where the stdout sink writes
	DrainTimeout time.Duration // the time to finish the deltas in hand when stopping
	// Probes is the address of the probes instead of listen.probes; empty: that one.
	Probes string
	Cache  string // the folder for compiled modules; empty: none
	// Reload: each value makes the worker read its configuration again. A changed file is read
	// without it.
	Reload <-chan os.Signal

	retryOpen time.Duration // the time after which a configuration that could not be opened is tried again; 0: a minute
}

const (
	// checkInterval is the pause between two looks at the files of the configuration.
	checkInterval = 2 * time.Second
	retryOpen     = time.Minute
	// closeTimeout is the time that handlers and sinks have to close.
	closeTimeout = 5 * time.Second
)

// Run runs the worker until ctx is done, and then hands its partitions over. The error is
// config.Problems if the configuration is invalid. Several workers may run in one process, so the
// caller redirects the log of client-go, which is global: see informer.QuietKlog.
func Run(ctx context.Context, opts Options) error {
	cfg, _ := config.Load(opts.Config, opts.Components.Policy)
	content := contentOf(opts.Config, cfg) // before it is read
	closeProbes := startProbes(ctx, &opts, cfg)
	p, err := plan(ctx, opts, nil)
	closeProbes()
	if err != nil {
		return err
	}
	now := &version{p, content}
	var works, former *version // the last one that could be opened, and the one before a changed file
	refused := refusal{}
	for {
		w, err := open(ctx, opts, now.plan)
		if err != nil && ctx.Err() != nil {
			opts.Log.Info("stopped during the start", "err", err)
			return nil
		}
		if err != nil && works == nil {
			return err
		}
		if err != nil { // a registry may be away, or a file that the configuration names missing
			opts.Log.Error("the new configuration cannot be used: the worker goes on with the previous one", "err", err)
			refused = refusal{now.content, time.Now().Add(cmp.Or(opts.retryOpen, retryOpen))}
			now, works, former = works, nil, nil
			continue
		}
		works, w.file = now, file{content: now.content, refused: refused, former: former}
		next, err := w.run(ctx)
		if err = errors.Join(err, w.close(ctx)); err != nil || next == nil {
			return err
		}
		if former = now; next == w.file.former {
			former = nil // from there only the file leads on
		}
		now, refused = next, refusal{}
	}
}

// plan reads the configuration and compiles it. No cluster is asked. Included files that have
// mistakes now keep the routes of their former texts, as on the leader.
func plan(ctx context.Context, opts Options, former map[string][]byte) (*compile.Plan, error) {
	var plans *compile.Plans
	p, problems := plans.Make(ctx, compile.Input{Path: opts.Config, Former: former, Tolerant: true}, opts.Components, func(config.Cluster) (*informer.Client, error) {
		return nil, errors.New("a worker asks no cluster")
	})
	if len(problems) > 0 {
		return nil, problems
	}
	if p.Config.Fleet == nil {
		return nil, config.Problems{{File: files.Name(opts.Config), Message: "a worker needs the section fleet: add it, or run the router without workers"}}
	}
	if len(workersOf(p)) == 0 {
		if len(p.Rejected) > 0 { // the routes with workers may be in the rejected files
			return nil, p.Mistakes()
		}
		return nil, config.Problems{{File: files.Name(opts.Config), Message: "no route has workers: add workers to the routes that workers should handle"}}
	}
	return p, nil
}

// run owns partitions until ctx is done, or until the configuration has changed: then it returns
// the new one.
func (w *worker) run(ctx context.Context) (next *version, err error) {
	owning, abort := context.WithCancel(context.WithoutCancel(ctx))
	defer abort()
	give, ended := make(chan struct{}), make(chan struct{})
	go func() { defer close(ended); w.owner.Run(owning, give) }()
	w.reportIncludes()
	w.log.Info("started", "version", w.opts.Version, "config", w.opts.Config, "fleet", w.plan.Config.Fleet.Name, "worker", w.id, "routes", len(w.routes))
	for _, note := range w.plan.Notes().Sorted() {
		if isMembersKey(note.Path) {
			continue // it has no value here, as it should be
		}
		w.log.Warn("configuration warning", "warning", note.Error())
	}
	next, err = w.wait(ctx)
	// owning is not cancelled yet: a partition is handed over when its deltas in hand are done.
	w.log.Info("handing the partitions over", "drainTimeout", w.opts.DrainTimeout, "reload", next != nil)
	close(give)
	late := time.NewTimer(w.opts.DrainTimeout + closeTimeout)
	defer late.Stop()
	select {
	case <-ended:
	case <-late.C:
		w.log.Warn("stopped before all partitions were handed over: other workers take them when their leases end")
		abort()
		<-ended
	}
	return next, err
}

// wait waits for the end or for another configuration.
func (w *worker) wait(ctx context.Context) (*version, error) {
	tick := time.NewTicker(checkInterval)
	defer tick.Stop()
	for {
		asked := false
		select {
		case <-ctx.Done():
			return nil, nil
		case <-w.opts.Reload:
			asked = true
		case <-tick.C:
			w.resume()
			if former := w.back(ctx); former != nil {
				return former, nil
			}
		}
		if next := w.changed(ctx, asked); next != nil {
			return next, nil
		}
	}
}

// changed returns a changed configuration; nil: it has not changed or has mistakes, which are
// logged once.
func (w *worker) changed(ctx context.Context, asked bool) *version {
	cfg, problems := config.Load(w.opts.Config, w.opts.Components.Policy)
	content := contentOf(w.opts.Config, cfg)
	if !asked && (cfg == nil || content == w.file.content || w.file.refused.holds(content)) {
		return nil
	}
	if len(problems) == 0 {
		next, err := w.file.coming.read(ctx, w.opts, content, w.plan.Accepted)
		if err == nil {
			return w.adopt(ctx, next)
		}
		if !errors.As(err, &problems) {
			return nil
		}
	}
	w.file.refused = refusal{content: content}
	w.log.Error("the configuration has mistakes: the worker goes on with the previous one", "err", fmt.Sprint(problems))
	return nil
}
