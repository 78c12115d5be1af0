// Package fakekind makes kinds of handlers and sinks from functions, for tests of the host.
package fakekind

import (
	"context"
	"errors"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// Kind is a [plugins.Kind] made from functions. Its configuration must be an empty mapping unless
// CheckFunc is set.
type Kind[T, E any] struct {
	plugins.Definition[struct{}]

	CheckFunc func(node config.Node) config.Problems // nil: only {} is valid
	OpenFunc  func(ctx context.Context, node config.Node, env E) (T, error)
}

type (
	// Handler is a kind of handlers made from functions.
	Handler = Kind[plugins.Handler, plugins.HandlerEnv]
	// Sink is a kind of sinks made from functions.
	Sink = Kind[plugins.Sink, plugins.SinkEnv]
)

// Check implements [plugins.Kind].
func (k Kind[T, E]) Check(node config.Node) config.Problems {
	if k.CheckFunc != nil {
		return k.CheckFunc(node)
	}
	return k.Definition.Check(node)
}

// Open implements [plugins.Kind].
func (k Kind[T, E]) Open(ctx context.Context, node config.Node, env E) (made T, err error) {
	if k.OpenFunc == nil {
		return made, errors.New("this kind is not meant to be opened")
	}
	return k.OpenFunc(ctx, node, env)
}

// Define returns the definition of a fake kind.
func Define(name string) plugins.Definition[struct{}] {
	return plugins.Definition[struct{}]{Name: name, Doc: "Does nothing.", Example: "{}"}
}
