package check

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/internal/kv"
	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// load loads all handlers at the same time and adds their problems. It starts no programs, and
// sends requests to registries of modules only.
func (f *Findings) load(ctx context.Context, cfg *config.Config, kinds []plugins.HandlerKind, cache string, modules plugins.Modules) {
	names := slices.Sorted(maps.Keys(cfg.Handlers))
	found := make([]config.Problems, len(names))
	var wait sync.WaitGroup
	for i, name := range names {
		c := cfg.Handlers[name]
		kind := compile.KindOf(kinds, c.Kind)
		if loader, ok := kind.(plugins.Loader); ok && len(kind.Check(c.Config)) == 0 {
			wait.Go(func() { found[i] = loadHandler(ctx, cfg, name, loader, cache, modules) })
		}
	}
	wait.Wait()
	for _, p := range slices.Concat(found...) {
		if p.Warning {
			f.Warnings = append(f.Warnings, p)
		} else {
			f.Problems = append(f.Problems, p)
		}
	}
}

// loadHandler loads one handler. If a handler sends a request during its start, which fails here,
// its failure may be a consequence of that; then it is a warning.
func loadHandler(ctx context.Context, cfg *config.Config, name string, kind plugins.Loader, cache string, modules plugins.Modules) config.Problems {
	network := &refusing{}
	problems := kind.Load(ctx, cfg.Handlers[name].Config, plugins.HandlerEnv{
		Env: plugins.Env{
			Name: name, Cluster: cfg.Cluster.Name, Log: slog.New(slog.DiscardHandler), Metrics: metrics.New(), KV: kv.New(timer.Real(), false),
		},
		Workers: 1, Lookup: nothing{}, HTTP: network, Modules: modules, Cache: cache,
	})
	if network.asked.Load() {
		for i := range problems {
			problems[i].Warning = true
			problems[i].Message = fmt.Sprintf("its start fails without requests, which this check does not send: %s", problems[i].Message)
		}
	}
	return problems
}

// refusing is a network without connections. It records whether it was used.
type refusing struct{ asked atomic.Bool }

// RoundTrip implements http.RoundTripper.
func (n *refusing) RoundTrip(*http.Request) (*http.Response, error) {
	n.asked.Store(true)
	return nil, errNotSent
}

var errNotSent = errors.New("a check sends no requests")

// nothing is a cache without objects.
type nothing struct{}

var _ plugins.Lookup = nothing{}

// Lookup implements plugins.Lookup.
func (nothing) Lookup(string, string, string) []*event.Object { return nil }

// Count implements plugins.Lookup.
func (nothing) Count(string, string, string) int { return 0 }

// Get implements plugins.Lookup.
func (nothing) Get(string, string, string) *event.Object { return nil }
