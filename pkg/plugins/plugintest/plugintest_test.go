package plugintest_test

import (
	"context"
	"testing"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
	"github.com/deltarouter/deltarouter/test/fakekind"
	"github.com/deltarouter/deltarouter/test/leaks"
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

// ordered is a kind of sinks that keep the order of a key.
type ordered struct{ fakekind.Sink }

func (ordered) InOrder() {}

// The suites accept a kind that keeps the contract.
func TestSuites(t *testing.T) {
	t.Run("sink", func(t *testing.T) {
		plugintest.RunSink(t, plugintest.Sink{Kind: ordered{fakekind.Sink{
			Definition: fakekind.Define("echo"),
			OpenFunc:   func(context.Context, config.Node, plugins.SinkEnv) (plugins.Sink, error) { return echo{}, nil },
		}}})
	})
	t.Run("handler", func(t *testing.T) {
		plugintest.RunHandler(t, plugintest.Handler{Kind: fakekind.Handler{
			Definition: fakekind.Define("echo"),
			OpenFunc:   func(context.Context, config.Node, plugins.HandlerEnv) (plugins.Handler, error) { return echo{}, nil },
		}})
	})
}

func TestMain(m *testing.M) { leaks.Main(m) }
