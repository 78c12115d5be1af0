// Package solo runs one handler of a configuration alone, for its author: in the real sandbox, but
// without a cluster, filters, queues and sinks. `router plugin run` passes objects or a recording
// to it and prints the results; `router plugin bench` measures it beside an empty handler.
//
//	objects, recording ──Deltas──► Handler ──► results, or a Measurement
//
// The functions of the host work as far as they can without a cluster: key-value pairs are kept
// until the end, look-ups find nothing, and HTTP requests fail.
package solo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/deltarouter/deltarouter/internal/callrecord"
	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/internal/kv"
	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// Options name a handler.
type Options struct {
	Config     string // path of the configuration
	Name       string // of the handler; empty: the only one of the configuration
	Components compile.Components
	Log        *slog.Logger       // for the output of the handler
	Replay     *callrecord.Replay // the call to repeat; nil: none
	Cache      string             // the folder for compiled modules; empty: none
}

// Handler is an open handler. One goroutine uses it at a time.
type Handler struct {
	Name string
	Kind string

	cfg     *config.Config
	open    plugins.Handler
	metrics *metrics.Metrics
}

// errNoReason is the error of a verdict without a message.
var errNoReason = errors.New("the handler gives no reason")

// Open opens a handler. The error is config.Problems if the configuration has mistakes. Problems of
// sinks and routes are not searched for.
func Open(ctx context.Context, opts Options) (*Handler, error) {
	cfg, problems := config.Load(opts.Config, opts.Components.Policy)
	if len(problems) > 0 {
		return nil, problems
	}
	name, err := choose(cfg, opts.Name)
	if err != nil {
		return nil, err
	}
	c := cfg.Handlers[name]
	kind := compile.KindOf(opts.Components.Handlers, c.Kind)
	if kind == nil {
		return nil, config.Problems{c.Node.Problemf("unknown kind of handler %q", c.Kind)}
	}
	if problems := kind.Check(c.Config); len(problems) > 0 {
		return nil, problems
	}
	h := &Handler{Name: name, Kind: c.Kind, cfg: cfg, metrics: metrics.New()}
	var clock timer.Clock
	if opts.Replay != nil {
		clock = timer.NewFake(time.Now()) // time does not end a call that is measured
	}
	h.open, err = kind.Open(ctx, c.Config, plugins.HandlerEnv{
		Env: plugins.Env{
			Name: name, Cluster: cfg.Cluster.Name, Log: opts.Log.With("handler", name), Metrics: h.metrics, KV: kv.New(timer.Real(), false), Clock: clock,
		},
		Workers: 1, Cache: opts.Cache, Lookup: nothing{}, HTTP: unplugged{}, Replay: opts.Replay,
	})
	if err != nil {
		return nil, config.Problems{c.Config.Problemf("%v", err)}
	}
	return h, nil
}

// choose returns the name of the handler that is meant.
func choose(cfg *config.Config, name string) (string, error) {
	names := slices.Sorted(maps.Keys(cfg.Handlers))
	switch {
	case name != "" && cfg.Handlers[name] != nil:
		return name, nil
	case name != "":
		return "", fmt.Errorf("there is no handler %q%s", name, config.Suggest(name, names))
	case len(names) == 1:
		return names[0], nil
	case len(names) == 0:
		return "", errors.New("the configuration has no handler")
	}
	return "", fmt.Errorf("the configuration has several handlers: choose one with -handler, %s", orList(names))
}

func orList(names []string) string {
	text := names[0]
	for _, name := range names[1:] {
		text += " or " + name
	}
	return text
}

// Handle passes one delta to the handler.
func (h *Handler) Handle(ctx context.Context, d *event.Delta) (plugins.Result, error) {
	results, err := h.open.Handle(ctx, []*event.Delta{d})
	if err != nil {
		return plugins.Result{}, err
	}
	return results[0], nil
}

// Digest returns the SHA-256 of the code of the handler, or nothing if that is unknown.
func (h *Handler) Digest() string {
	if pinned, ok := h.open.(plugins.Pinned); ok {
		return pinned.Digest()
	}
	return ""
}

// Replay repeats the call that the handler was opened for.
func (h *Handler) Replay(ctx context.Context) (*callrecord.Outcome, error) {
	r, ok := h.open.(callrecord.Replayer)
	if !ok {
		return nil, fmt.Errorf("a handler of kind %s cannot repeat a call", h.Kind)
	}
	return r.Replay(ctx)
}

// Close closes the handler.
func (h *Handler) Close(ctx context.Context) error { return h.open.Close(ctx) }

// nothing is a cache without objects.
type nothing struct{}

var _ plugins.Lookup = nothing{}

// Lookup implements plugins.Lookup.
func (nothing) Lookup(string, string, string) []*event.Object { return nil }

// Count implements plugins.Lookup.
func (nothing) Count(string, string, string) int { return 0 }

// Get implements plugins.Lookup.
func (nothing) Get(string, string, string) *event.Object { return nil }

// unplugged is a network without connections.
type unplugged struct{}

var errUnplugged = errors.New("a handler that runs alone has no network")

// RoundTrip implements http.RoundTripper.
func (unplugged) RoundTrip(*http.Request) (*http.Response, error) { return nil, errUnplugged }
