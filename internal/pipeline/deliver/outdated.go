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

// present replaces the deltas of an entry whose events are made again by copies with the present
// states of their objects, where these are known.
func (c *Config) present(e *queue.Entry, deltas []*event.Delta) {
	if e.Progress.Outdated == 0 || c.Current == nil {
		return
	}
	for i, d := range deltas {
		if d.New == nil || d.Event != nil {
			continue
		}
		if now := c.Current(d); now != nil && now.UID() == d.New.UID() {
			present := *d
			present.New, deltas[i] = now, &present
		}
	}
}
