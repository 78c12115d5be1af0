package engine

import (
	"context"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// maxScopedCalls is the maximum of simultaneous calls of the instance of a scope: its authors
// choose the number of routes and their concurrency, but not the memory of the host.
const maxScopedCalls = 32

// limited is a handler whose further calls wait. All routes of an instance share the slots.
type limited struct {
	plugins.Handler

	slots chan struct{} // one element per running call
}

// Handle implements [plugins.Handler].
func (l limited) Handle(ctx context.Context, batch []*event.Delta) ([]plugins.Result, error) {
	select {
	case l.slots <- struct{}{}:
		defer func() { <-l.slots }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return l.Handler.Handle(ctx, batch)
}

// timedLimited is a limited handler with a time limit.
type timedLimited struct {
	limited
	plugins.Timed
}

// handlerOf returns the handler of an instance, for the routes.
func handlerOf(i *instance[plugins.Handler]) plugins.Handler {
	if i.slots == nil {
		return i.value
	}
	l := limited{i.value, i.slots}
	if timed, ok := i.value.(plugins.Timed); ok {
		return timedLimited{l, timed}
	}
	return l
}
