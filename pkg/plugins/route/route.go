// Package route is the sink kind `route`: what a route gives to such a sink is the input of another route, so that several routes share the
// work of one (fan-out), or go on with what it made (chains). The pipeline itself hands the events over, in its memory and in one step with
// what it owes; this package says what stands in the configuration.
package route

import (
	"context"
	"errors"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// Config is what stands below `route:` in the configuration.
type Config struct {
	Name string `yaml:"name,required" doc:"The route that gets the events. It has no from of its own."`
}

// Factory returns the factory of the kind route.
func Factory() plugins.Factory[plugins.Sink] {
	return plugins.Factory[plugins.Sink]{
		Kind:    "route",
		Doc:     "Gives the events to another route, which filters them and goes on with them.",
		Config:  Config{},
		Example: "name: per-team\n",
		Check:   func(node config.Node) config.Problems { return node.Decode(&Config{}) },
		Feeds: func(node config.Node) (name string, at config.Node) {
			var cfg Config
			_ = node.Decode(&cfg) // Check has accepted it
			return cfg.Name, node.At("name")
		},
		Open: func(context.Context, config.Node, plugins.Env) (plugins.Sink, error) { return unwritten{}, nil },
	}
}

// errUnwritten: the pipeline gives events to a route by itself.
var errUnwritten = errors.New("events were written to a sink of the kind route: this is a bug of the router")

// unwritten stands for the sink where each has one.
type unwritten struct{}

// Write implements [plugins.Sink]. It is not called.
func (unwritten) Write(_ context.Context, events []event.Event) []error {
	errs := make([]error, len(events))
	for i := range errs {
		errs[i] = plugins.Reject(errUnwritten)
	}
	return errs
}

// Close implements [plugins.Sink].
func (unwritten) Close(context.Context) error { return nil }
