// Package emit is the handler of a route with `emit:`, a CEL expression. Its value, a map or a list
// of maps, contains the data of the events, and optionally their types and subjects. The handler is
// not configured under `handlers`, so it is no plugins.Kind.
package emit

import (
	"context"
	"fmt"

	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// New returns a handler that evaluates p for each delta. If it is grouped, it evaluates p once for
// each batch, with its last delta, whose Result has the events. p must be compiled for [cel.Emit];
// it looks objects up in cache.
func New(p *cel.Program, cache cel.Cache, grouped bool) plugins.Handler {
	return &handler{p, cache, grouped}
}

type handler struct {
	program *cel.Program
	cache   cel.Cache
	grouped bool
}

// Handle implements [plugins.Handler]. If the expression fails, the delta is rejected, because a
// retry would fail in the same way.
func (h *handler) Handle(ctx context.Context, batch []*event.Delta) ([]plugins.Result, error) {
	results := make([]plugins.Result, len(batch))
	for i, d := range batch {
		in := cel.Input{Delta: d, Cache: h.cache}
		if h.grouped {
			if i < len(batch)-1 {
				continue
			}
			in.Group = batch
		}
		events, err := h.program.Emit(ctx, in)
		if cancelled := ctx.Err(); cancelled != nil {
			return nil, cancelled
		}
		if err != nil {
			results[i] = plugins.Result{
				Verdict: plugins.Fail,
				Err:     plugins.Reject(plugins.Categorize(fmt.Errorf("emit: %w", err), "the expression emit failed")),
			}
			continue
		}
		for _, e := range events {
			results[i].Events = append(results[i].Events, plugins.Emit{Type: e.Type, Subject: e.Subject, Data: e.Data})
		}
	}
	return results, nil
}

// Close implements [plugins.Handler].
func (*handler) Close(context.Context) error { return nil }
