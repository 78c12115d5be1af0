package deliver

import (
	"github.com/deltarouter/deltarouter/internal/outdated"
	"github.com/deltarouter/deltarouter/internal/pipeline/queue"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// maxOutdated is the maximum number of times that the events of a delta are made again because a
// sink found them outdated.
const maxOutdated = 30

// retries reports whether a refused event is retried. If it was made of an outdated state, the
// handler makes the events of the delta again, and alone, because each of its batch may change the
// state of the next.
func retries(e *queue.Entry, refusal error) bool {
	if !outdated.Is(refusal) {
		return true
	}
	if e.Progress.Outdated++; e.Progress.Outdated > maxOutdated {
		return false
	}
	e.Progress.Again, e.Progress.Alone = true, true
	return true
}

// present returns a delta with the present state of its object, if its events are made again.
func (c *Config) present(e *queue.Entry, d *event.Delta) *event.Delta {
	if e.Progress.Outdated == 0 || c.Current == nil || d.New == nil || d.Event != nil {
		return d
	}
	now := c.Current(d)
	if now == nil || now.UID() != d.New.UID() {
		return d
	}
	present := *d
	present.New = now
	return &present
}
