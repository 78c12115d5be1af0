package deliver

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/deltarouter/deltarouter/internal/backoff"
	"github.com/deltarouter/deltarouter/internal/circuit"
	"github.com/deltarouter/deltarouter/internal/complaints"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

const (
	// breakAfter is the number of failed writes in a row that opens the breaker.
	breakAfter = 3
	// longestPause bounds the Retry-After of a sink.
	longestPause = time.Hour
)

// Sink is a sink behind its circuit breaker, shared by all routes that use it. After some writes in
// a row that found the sink unavailable, the breaker opens and refuses all writes for a while. Then
// it lets the events of one delta through as a probe: if the sink takes or rejects one, the breaker
// closes.
type Sink struct {
	*circuit.Breaker

	name string
	of   string // the only route that uses it; empty: it may be shared
	sink plugins.Sink
	log  *complaints.Log
}

// RefusedError is returned for an event that the open breaker did not let through, or that a
// downstream route has no room for.
type RefusedError struct {
	Sink  string
	Until time.Time
	Why   string // the reason of a route; empty: the breaker
}

func (e *RefusedError) Error() string {
	if e.Why != "" {
		return fmt.Sprintf("%s; next attempt at %s", e.Why, e.Until.Format(time.RFC3339))
	}
	return fmt.Sprintf("sink %q is unavailable; next attempt at %s", e.Sink, e.Until.Format(time.RFC3339))
}

// NewSink puts a sink behind a closed breaker. of is the only route that uses it, for the log;
// empty: it may be shared.
func NewSink(name, of string, sink plugins.Sink, log *complaints.Log, clock timer.Clock) *Sink {
	return &Sink{Breaker: circuit.New(clock, breakAfter, backoff.Policy{}), name: name, of: of, sink: sink, log: log}
}

// State returns whether the breaker is open; and then the time of the next probe, which may be in
// the past, and a channel that is closed when the state changes.
func (b *Sink) State() (open bool, probe time.Time, changed <-chan struct{}) {
	s := b.Status()
	return s.Open, s.Until, s.Changed
}

// write writes the events; the first ones, as many as first, are of one delta. The result follows
// the contract of [plugins.Sink.Write], even if the sink violates it.
func (b *Sink) write(ctx context.Context, events []event.Event, first int) []error {
	permit, status := b.Allow()
	allowed := len(events)
	switch permit {
	case circuit.Refused:
		allowed = 0
	case circuit.Probe:
		allowed = first
	case circuit.Granted:
	}
	var errs []error
	if allowed > 0 {
		errs = b.call(ctx, events[:allowed])
		b.recordResult(ctx, errs, permit)
	}
	if allowed == len(events) {
		return errs
	}
	refused := &RefusedError{Sink: b.name, Until: status.Until}
	all := make([]error, len(events))
	copy(all, errs)
	for i := allowed; i < len(all); i++ {
		all[i] = refused
	}
	return all
}

// call writes to the sink and turns violations of its contract into errors.
func (b *Sink) call(ctx context.Context, events []event.Event) (errs []error) {
	defer func() {
		if p := recover(); p != nil {
			errs = same(fmt.Errorf("sink %q panicked: %w", b.name, spec.Panicked(p)), len(events))
		}
	}()
	errs = b.sink.Write(ctx, events)
	if errs != nil && len(errs) != len(events) {
		err := fmt.Errorf("sink %q returned %d results for %d events", b.name, len(errs), len(events))
		return same(err, len(events))
	}
	for i, err := range errs {
		errs[i] = plugins.Bound(err)
	}
	return errs
}

// recordResult passes the result of a write to the breaker.
func (b *Sink) recordResult(ctx context.Context, errs []error, permit circuit.Permit) {
	later, failure := unavailable(errs)
	switch {
	case failure == nil:
		if b.Succeeded() {
			b.say(slog.LevelInfo, "sink is available again", nil)
		}
	case ctx.Err() != nil: // the end of the pipeline does not show that the sink is unavailable
		b.Abandoned(permit)
	default:
		if opened, _ := b.Failed(permit, failure, min(later, longestPause)); opened && permit != circuit.Probe {
			b.say(slog.LevelWarn, "sink is unavailable; its routes wait and probe it", failure)
		}
	}
}

func (b *Sink) say(level slog.Level, message string, err error) {
	var about slog.Attr
	if b.of != "" {
		about = slog.String("route", b.of)
	}
	b.log.Say(level, message, err, about, slog.String("sink", b.name))
}

// Opened is 1 while the breaker is open, else 0.
func (b *Sink) Opened() float64 {
	if b.Status().Open {
		return 1
	}
	return 0
}

// unavailable returns the longest delay that the sink requested and an error, if the write shows
// that the sink is unavailable: each event failed with an error of class Failed.
func unavailable(errs []error) (later time.Duration, failure error) {
	for _, err := range errs {
		if err == nil || plugins.ClassOf(err) != plugins.Failed {
			return 0, nil
		}
		failure = err
		later = max(later, plugins.RetryAfter(err))
	}
	return later, failure
}

func same(err error, n int) []error {
	errs := make([]error, n)
	for i := range errs {
		errs[i] = err
	}
	return errs
}

// Name returns the name of the sink.
func (b *Sink) Name() string { return b.name }
