package plugintest_test

import (
	"context"
	"testing"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
)

type echo struct{}

func (echo) Handle(_ context.Context, batch []*event.Delta) ([]plugins.Result, error) {
	results := make([]plugins.Result, len(batch))
	for i, d := range batch {
		results[i].Events = []plugins.Emit{{Data: event.Payload(d)}}
	}
	return results, nil
}

func (echo) Write(context.Context, []event.Event) []error { return nil }
func (echo) Close(context.Context) error                  { return nil }

func factory[T any](kind string, made T) plugins.Factory[T] {
	return plugins.Factory[T]{
		Kind: kind, Doc: "Does nothing.", Config: struct{}{}, Example: "{}",
		Check: func(n config.Node) config.Problems { return n.Decode(&struct{}{}) },
		Open:  func(context.Context, config.Node, plugins.Env) (T, error) { return made, nil },
	}
}

// The suites accept a kind that keeps the contract.
func TestSuites(t *testing.T) {
	t.Run("sink", func(t *testing.T) {
		plugintest.RunSink(t, plugintest.Sink{Factory: factory[plugins.Sink]("echo", echo{})})
	})
	t.Run("handler", func(t *testing.T) {
		plugintest.RunHandler(t, plugintest.Handler{Factory: factory[plugins.Handler]("echo", echo{})})
	})
}
