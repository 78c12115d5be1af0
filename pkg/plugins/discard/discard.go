// Package discard is the sink kind `discard`: it discards events, for measurements and for routes
// whose handler does the work.
package discard

import (
	"context"
	"log/slog"
	"sync/atomic"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// sinkConfig is the configuration below `discard:`. It has no keys.
type sinkConfig struct{}

// Kind returns the kind of sink `discard`.
func Kind() plugins.SinkKind {
	return plugins.SinkDefinition[sinkConfig]{New: newSink, Definition: plugins.Definition[sinkConfig]{
		Name:    "discard",
		Doc:     "Discards events, for measurements.",
		Example: "{}\n",
	}}
}

func newSink(_ context.Context, _ sinkConfig, env plugins.SinkEnv) (plugins.Sink, error) {
	return &sink{log: env.Log}, nil
}

type sink struct {
	log   *slog.Logger
	count atomic.Int64
}

// Write implements [plugins.Sink]. It never fails. The pipeline counts the events as delivered, per
// route.
func (s *sink) Write(_ context.Context, events []event.Event) []error {
	s.count.Add(int64(len(events)))
	return nil
}

// Close implements [plugins.Sink].
func (s *sink) Close(context.Context) error {
	s.log.Info("events discarded", "count", s.count.Load())
	return nil
}
