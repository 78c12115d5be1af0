// Package emit is the handler that a route with `emit:` has: a CEL expression whose value, a map or a list of maps, is the data of
// the events. It is no kind that is configured under `handlers`, so it has no factory.
package emit

import (
	"context"
	"fmt"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/expr"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// New returns a handler that evaluates p for every delta. p was compiled for [expr.Emit]; cache is what it looks things up in.
func New(p *expr.Program, cache expr.Cache) plugins.Handler { return &handler{p, cache} }

type handler struct {
	program *expr.Program
	cache   expr.Cache
}

// Handle implements [plugins.Handler]. An expression is a function of the delta: one that fails would fail again, so the delta is
// rejected.
func (h *handler) Handle(ctx context.Context, batch []*event.Delta) ([]plugins.Result, error) {
	results := make([]plugins.Result, len(batch))
	for i, d := range batch {
		data, err := h.program.Emit(ctx, expr.Input{Delta: d, Cache: h.cache})
		if cancelled := ctx.Err(); cancelled != nil {
			return nil, cancelled
		}
		if err != nil {
			results[i] = plugins.Result{
				Verdict: plugins.Fail,
				Err:     plugins.Reject(fmt.Errorf("emit: %s: %w", d, err)),
			}
			continue
		}
		for _, event := range data {
			results[i].Events = append(results[i].Events, plugins.Emit{Data: event})
		}
	}
	return results, nil
}

// Close implements [plugins.Handler].
func (*handler) Close(context.Context) error { return nil }
