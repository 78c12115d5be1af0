package host

import (
	"context"
	"fmt"
	"slices"

	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/internal/guest/abi"
)

// hostEmit implements emit(delta, event, size).
func hostEmit(_ context.Context, c *hostCall) int64 {
	s, delta, size := c.scope, c.u32(0), c.u32(2)
	if uint64(delta) >= uint64(len(s.batch)) {
		return abi.StatusInvalid
	}
	c.charge(emitFuel)
	output := int(s.limits.Output)
	if int64(size) > int64(output) {
		return abi.StatusQuota
	}
	text, ok := c.memory.Read(c.u32(1), size)
	if !ok {
		return abi.StatusInvalid
	}
	for len(s.emitted) < len(s.batch) {
		s.emitted, s.volumes = append(s.emitted, nil), append(s.volumes, 0)
	}
	if len(s.emitted[delta]) >= s.limits.Events || s.volumes[delta]+len(text) > output {
		return abi.StatusQuota
	}
	if s.volume+len(text) > output {
		s.tooMuch = true // the call has no effect: it is repeated with half the deltas
		return abi.StatusOK
	}
	c.charge(textFuel(len(text)) / 2) // for parsing
	event, err := abi.ParseEnvelope(s.limits, string(text))
	if err != nil {
		return abi.StatusInvalid
	}
	s.emitted[delta] = append(s.emitted[delta], event)
	s.volumes[delta] += len(text)
	s.volume += len(text)
	return abi.StatusOK
}

// addEmitted inserts the emitted events before the events of the answer. A delta that is not ok has
// no events.
func (s *Scope) addEmitted(results []plugins.Result) {
	for i, emitted := range s.emitted {
		if i >= len(results) || len(emitted) == 0 || results[i].Verdict != plugins.OK {
			continue
		}
		if n := len(emitted) + len(results[i].Events); n > s.limits.Events {
			results[i] = abi.Reject(fmt.Errorf("%d events for one delta, at most %d (limits.events)", n, s.limits.Events))
			continue
		}
		results[i].Events = slices.Concat(emitted, results[i].Events)
	}
}
