package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/timer"
)

const (
	// breakAfter is how many writes in a row must fail before a sink is left alone.
	breakAfter = 3
	// longestPause bounds what a sink can ask for with a Retry-After.
	longestPause = time.Hour
	// probeWatch is how often a route looks whether the probe of another has ended, beside being told.
	probeWatch = time.Second
)

// breaker stands before a sink, shared by all routes that use it. After some writes in a row that found the sink unavailable, it
// refuses all writes for a while, then lets the events of one delta through as a probe: if the sink takes (or rejects) one, all is well.
type breaker struct {
	name  string
	sink  plugins.Sink
	log   *slog.Logger
	clock timer.Clock

	mu       sync.Mutex
	backoff  Retry // the shortest of the routes' own
	failures int   // in a row
	trips    int   // openings in a row; 0: closed
	until    time.Time
	probing  bool
	changed  chan struct{} // closed when trips, until or probing change
	failure  error         // why it opened
	since    time.Time     // when
}

// refusedError says that the breaker did not let an event through, or that the route has no room that the sink stands for.
type refusedError struct {
	sink  string
	until time.Time
	why   string // of a route; empty: the breaker
}

func (e *refusedError) Error() string {
	if e.why != "" {
		return fmt.Sprintf("%s, it is left alone until %s", e.why, e.until.Format(time.RFC3339))
	}
	return fmt.Sprintf("sink %q is unavailable, it is left alone until %s", e.sink, e.until.Format(time.RFC3339))
}

func newBreaker(s NamedSink, log *slog.Logger, clock timer.Clock) *breaker {
	return &breaker{name: s.Name, sink: s.Sink, log: log, clock: clock, changed: make(chan struct{})}
}

// configure is called once for each route, before its first write.
func (b *breaker) configure(r Retry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.backoff.Backoff == 0 || r.Backoff < b.backoff.Backoff {
		b.backoff.Backoff = r.Backoff
	}
	if b.backoff.Max == 0 || r.Max < b.backoff.Max {
		b.backoff.Max = r.Max
	}
	b.backoff.Exact = r.Exact
}

// look tells whether the breaker is open, and then when a probe may be sent, which may be over, and what is closed when that changes.
func (b *breaker) look(now time.Time) (open bool, probe time.Time, changed <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.trips == 0:
		return false, probe, nil
	case b.probing:
		return true, now.Add(probeWatch), b.changed
	default:
		return true, b.until, b.changed
	}
}

// write writes the events, the first so many of which are of one delta. The result is like that of [plugins.Sink.Write]; it is also
// right where the sink's is not.
func (b *breaker) write(ctx context.Context, events []event.Event, first int) []error {
	allowed, probe, refused := b.allow(len(events), first)
	var errs []error
	if allowed > 0 {
		errs = b.call(ctx, events[:allowed])
		b.learn(ctx, errs, probe)
	}
	if allowed == len(events) {
		return errs
	}
	all := make([]error, len(events))
	copy(all, errs)
	for i := allowed; i < len(all); i++ {
		all[i] = refused
	}
	return all
}

// allow returns how many of the events may be written now.
func (b *breaker) allow(n, first int) (allowed int, probe bool, refused error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.clock.Now()
	switch {
	case b.trips == 0:
		return n, false, nil
	case b.probing:
		return 0, false, &refusedError{sink: b.name, until: now.Add(probeWatch)}
	case now.Before(b.until):
		return 0, false, &refusedError{sink: b.name, until: b.until}
	}
	b.probing = true
	b.notify()
	return first, true, &refusedError{sink: b.name, until: now.Add(b.backoff.Backoff)}
}

// call writes to the sink and makes the best of a sink that breaks its contract.
func (b *breaker) call(ctx context.Context, events []event.Event) (errs []error) {
	defer func() {
		if p := recover(); p != nil {
			errs = same(fmt.Errorf("sink %q panicked: %w", b.name, panicked(p)), len(events))
		}
	}()
	errs = b.sink.Write(ctx, events)
	if errs != nil && len(errs) != len(events) {
		err := fmt.Errorf("sink %q returned %d results for %d events", b.name, len(errs), len(events))
		return same(err, len(events))
	}
	return errs
}

// learn changes the state by what came of a write.
func (b *breaker) learn(ctx context.Context, errs []error, probe bool) {
	later, failure := unavailable(errs)
	b.mu.Lock()
	defer b.mu.Unlock()
	if probe {
		b.probing = false
		defer b.notify()
	}
	if failure == nil {
		if b.trips > 0 {
			b.log.Info("sink is available again", slog.String("sink", b.name))
			b.trips = 0
			b.notify()
		}
		b.failures = 0
		return
	}
	if ctx.Err() != nil || b.trips > 0 && !probe {
		return // the end of the pipeline, or of a write that began before the breaker opened, says nothing
	}
	b.failures++
	if !probe && b.failures < breakAfter && later == 0 {
		return
	}
	b.trips++
	b.until = b.clock.Now().Add(max(b.backoff.delay(b.trips), min(later, longestPause)))
	b.notify()
	b.failure = failure
	if b.trips == 1 {
		b.since = b.clock.Now()
		b.log.Warn("sink is unavailable, its routes wait", slog.String("sink", b.name), slog.Any("error", failure))
	}
}

// SinkStatus is a sink that is unavailable.
type SinkStatus struct {
	Name   string
	Reason string    // of the last write that failed
	Since  time.Time // when it was left alone first
	Until  time.Time // when it is tried again
}

// Unavailable returns the sinks that are left alone because they took nothing, by name. Their routes wait.
func (p *Pipeline) Unavailable() (down []SinkStatus) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(p.breakers)) {
		b := p.breakers[id]
		b.mu.Lock()
		if b.trips > 0 {
			down = append(down, SinkStatus{Name: b.name, Reason: b.failure.Error(), Since: b.since, Until: b.until})
		}
		b.mu.Unlock()
	}
	return down
}

func (b *breaker) notify() {
	close(b.changed)
	b.changed = make(chan struct{})
}

// unavailable returns the longest time that the sink asked for and an error, if it took and rejected none of the events, and said of none
// what it can only say when it is well.
func unavailable(errs []error) (later time.Duration, failure error) {
	for _, err := range errs {
		if err == nil || plugins.IsRejected(err) || plugins.IsPause(err) || plugins.IsPostponed(err) {
			return 0, nil
		}
		failure = err
		later = max(later, plugins.RetryAfter(err))
	}
	return later, failure
}

// delay returns the time before the n-th try in a row, from 1.
func (r Retry) delay(n int) time.Duration {
	d := r.Max
	if n < 32 && r.Backoff < r.Max>>(n-1) {
		d = r.Backoff << (n - 1)
	}
	if r.Exact {
		return d
	}
	return d/2 + rand.N(d/2+1)
}

func same(err error, n int) []error {
	errs := make([]error, n)
	for i := range errs {
		errs[i] = err
	}
	return errs
}

// panicked makes an error of what was recovered. Only the runtime's own messages are known not to quote an object.
func panicked(p any) error {
	var runtimeError interface{ RuntimeError() }
	if err, ok := p.(error); ok && errors.As(err, &runtimeError) {
		return err
	}
	return fmt.Errorf("a value of type %T", p)
}
