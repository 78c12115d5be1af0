// Command router is deltarouter with a kind of sink and a kind of handler of its own, which a
// configuration uses like all others:
//
//	sinks: {team: {shout: {prefix: ALERT}}}
//	handlers: {names: {short: {}}}
package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/all"
	"github.com/deltarouter/deltarouter/pkg/router"
)

func main() { router.Main(append(all.Kinds(), shoutKind(), shortKind())...) }

// shoutConfig is the configuration of the kind of sink `shout`. The tags are its schema.
type shoutConfig struct {
	Prefix string `yaml:"prefix" default:"NEWS" doc:"The text before each event."`
}

func shoutKind() plugins.SinkKind {
	return plugins.SinkDefinition[shoutConfig]{
		Definition: plugins.Definition[shoutConfig]{Name: "shout", Doc: "Prints events in capitals.", Example: "prefix: ALERT\n"},
		New: func(_ context.Context, c shoutConfig, env plugins.SinkEnv) (plugins.Sink, error) {
			return &shout{env.Stdout, c.Prefix}, nil
		},
	}
}

type shout struct {
	out    io.Writer
	prefix string
}

// Write implements [plugins.Sink]. It returns no error, or one for each event.
func (s *shout) Write(_ context.Context, events []event.Event) []error {
	for i := range events {
		fmt.Fprintln(s.out, s.prefix, strings.ToUpper(string(events[i].Data)))
	}
	return nil
}

// Close implements [plugins.Sink].
func (s *shout) Close(context.Context) error { return nil }

func shortKind() plugins.HandlerKind {
	return plugins.HandlerDefinition[struct{}]{
		Definition: plugins.Definition[struct{}]{Name: "short", Doc: "Makes an event of the name of an object.", Example: "{}\n"},
		New: func(context.Context, struct{}, plugins.HandlerEnv) (plugins.Handler, error) {
			return short{}, nil
		},
	}
}

type short struct{}

// Handle implements [plugins.Handler]. It returns a result for each delta.
func (short) Handle(_ context.Context, batch []*event.Delta) ([]plugins.Result, error) {
	results := make([]plugins.Result, len(batch))
	for i, d := range batch {
		results[i].Events = []plugins.Emit{{Data: []byte(strconv.Quote(d.Object().Key().Name))}}
	}
	return results, nil
}

// Close implements [plugins.Handler].
func (short) Close(context.Context) error { return nil }
