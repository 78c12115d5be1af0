// Package filters decides which routes want a delta. A [Table] finds the candidates by source and op and by what their filters compare
// with constants, and then asks the [Filter] of each. It stands between a source and the delta queues of the routes (see pkg/pipeline): what it lets through is owed.
package filters

import (
	"context"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// Filter decides whether a route wants a delta. It is safe for concurrent use.
type Filter interface {
	// Match reports whether the route wants d. An error says that it cannot be told, and that asking again gives the same error:
	// the route treats the delta as rejected. A field that the object does not have is no error but no match.
	Match(ctx context.Context, d *event.Delta) (bool, error)
}

// Func makes a Filter of a function.
type Func func(ctx context.Context, d *event.Delta) (bool, error)

// Match implements [Filter].
func (f Func) Match(ctx context.Context, d *event.Delta) (bool, error) { return f(ctx, d) }
