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
func (s *Settings) Window() queue.Window {
	w := queue.Window{Quiet: s.Debounce.Quiet, Max: or(s.Debounce.Max, 10*s.Debounce.Quiet), Joint: s.Joint}
	if s.Grouped {
		w.Grouped, w.Wait, w.Size = true, s.Batch.Wait, s.Batch.Size
	}
	return w
}
