package deliver

import (
	"github.com/deltarouter/deltarouter/internal/outdated"
	"github.com/deltarouter/deltarouter/internal/pipeline/chain"
	"github.com/deltarouter/deltarouter/internal/pipeline/queue"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
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

// present replaces the deltas of an entry by copies with whole states, if they were restored as
// identities, and with the present states of their objects, if the events are made again. States
// that are not known stay.
func present(s *spec.Settings, e *queue.Entry, deltas []*event.Delta) {
	for i, d := range deltas {
		now := again(s, e, d)
		if now == nil {
			deltas[i] = d.Recalled()
			continue
		}
		present := *d
		if present.New = now; d.Old != nil {
			present.Old = d.Old.Recalled(now)
		}
		deltas[i] = &present
	}
}

// again returns the present state of the object of a delta whose events are made again; nil: they
// are not, or it is not known.
func again(s *spec.Settings, e *queue.Entry, d *event.Delta) *event.Object {
	if e.Progress.Outdated == 0 || s.Cached.Object == nil || d.New == nil || d.Event != nil {
		return nil
	}
	if now := s.Cached.Object(d); now != nil && now.UID() == d.New.UID() {
		return now
	}
	return nil
}

// unhandled returns the event of an entry without a handler. shown is its delta, or a copy with
// other states: the event has the identity of the delta in any case.
func unhandled(b *Batch, e *queue.Entry, shown *event.Delta) event.Event {
	made := chain.Event(shown, b.settings.Name)
	if shown.New != e.Delta.New {
		of := event.New(e.Delta, b.settings.Name, 0, nil)
		made.ID, made.K8sResourceVersion = of.ID, of.K8sResourceVersion
	}
	return keyed(e, made)
}
