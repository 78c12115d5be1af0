package deliver

import (
	"context"
	"fmt"

	"github.com/deltarouter/deltarouter/internal/pipeline/queue"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// extend replaces the deltas of an entry by copies with the values of the route's `with`. It
// returns false if there are none: the entry is rejected then, or, if handling has ended, tried
// again. The values are made again at each attempt.
func extend(ctx, handling context.Context, b *Batch, e *queue.Entry, deltas []*event.Delta) bool {
	if b.settings.With == nil {
		return true
	}
	for i, d := range deltas {
		values, err := b.settings.With(handling, d)
		if handling.Err() != nil {
			e.Progress.State = queue.Later
			return false
		}
		if err != nil {
			b.reject(ctx, e, plugins.Reject(plugins.Categorize(fmt.Errorf("with: %w", err), "an expression of with failed")))
			return false
		}
		extended := *d
		extended.With, deltas[i] = values, &extended
	}
	return true
}
