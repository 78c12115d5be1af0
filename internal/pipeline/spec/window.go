package spec

import (
	"time"

	"github.com/deltarouter/deltarouter/internal/pipeline/queue"
)

// Debounce makes a route wait for a quiet period: the deltas of an object (or of the key of the
// route) are coalesced until none has come for Quiet, or until the first has waited for Max. 0: no
// debounce.
type Debounce struct {
	Quiet time.Duration
	Max   time.Duration // 0: ten times Quiet
}

// Window returns the configuration of the windows of the route.
func (r *Settings) Window() queue.Window {
	w := queue.Window{Quiet: r.Debounce.Quiet, Max: or(r.Debounce.Max, 10*r.Debounce.Quiet), Joint: r.Joint}
	if r.Grouped {
		w.Grouped, w.Wait, w.Size = true, r.Batch.Wait, r.Batch.Size
	}
	return w
}
