// Package discard is the sink kind `discard`: it counts events and drops them. It is for measurements, and for trying out a route
// whose handler does the work.
package discard

import (
	"context"
	"log/slog"
	"sync/atomic"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// Config is what stands below `discard:` in the configuration: nothing.
type Config struct{}

// Factory returns the factory of the kind discard.
func Factory() plugins.Factory[plugins.Sink] {
	return plugins.Factory[plugins.Sink]{
		Kind:    "discard",
		Doc:     "Counts events and drops them, for measurements.",
		Config:  Config{},
		Example: "{}\n",
		Check:   func(node config.Node) config.Problems { return node.Decode(&Config{}) },
		Open: func(_ context.Context, _ config.Node, env plugins.Env) (plugins.Sink, error) {
			return &sink{log: env.Log}, nil
		},
	}
}

type sink struct {
	log   *slog.Logger
	count atomic.Int64
}

// Write implements [plugins.Sink]; it never fails. What it drops is counted as delivered by the pipeline, per route.
func (s *sink) Write(_ context.Context, events []event.Event) []error {
	s.count.Add(int64(len(events)))
	return nil
}

// Close implements [plugins.Sink].
func (s *sink) Close(context.Context) error {
	s.log.Info("events discarded", "count", s.count.Load())
	return nil
}
