package deliver

import (
	"context"
	"time"

	"github.com/deltarouter/deltarouter/internal/backoff"
	"github.com/deltarouter/deltarouter/internal/pipeline/queue"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// Config is what a batch is delivered by. A batch ends with the Config that it began with.
type Config struct {
	Route, ID   string // name and id of the route, for events and dead letters
	Handler     plugins.Handler
	HandlerName string
	Targets     []Target // at most 64
	// InOrder: several deltas of a key may be in one write.
	InOrder   bool
	Retry     Retry
	OnFailure OnFailure
	MaxAge    time.Duration // how old a delta may be that is delivered; 0: of any age
	// Secret: dead letters do not say why a delta was given up.
	Secret bool
	Count  Counters
}

// Target is where a route delivers to.
type Target struct {
	Name string
	Sink *Sink // nil: another route, see Route.PassOn
}

// Retry says how often and how long to try again.
type Retry struct {
	Attempts int // how often a rejected delta is tried again; 0: not at all
	// before the first try, doubled for each that follows, less up to half of it at random; 0:
	// 200ms
	Backoff time.Duration
	Max     time.Duration // the longest Backoff; 0: 30s
	MaxAge  time.Duration // how old a delta may become while a sink is unavailable; 0: 24h
	Exact   bool          // nothing is at random about Backoff
}

// Policy returns the times between the tries.
func (r Retry) Policy() backoff.Policy {
	return backoff.Policy{Min: r.Backoff, Max: r.Max, Exact: r.Exact}
}

// delay returns the time before the n-th try in a row, from 1.
func (r Retry) delay(n int) time.Duration { return r.Policy().Delay(n) }

// OnFailure says what happens to a delta that was rejected for good, or that is older than
// Retry.MaxAge.
type OnFailure uint8

// What a route does about failures.
const (
	// DeadLetter puts the delta aside, and the route goes on.
	DeadLetter OnFailure = iota
	// Drop drops the delta and counts it.
	Drop
	// Pause keeps the delta and stops the route until it is resumed or changed, or the router
	// starts anew.
	Pause
)

// Counters are metrics of a route.
type Counters struct {
	Handler Observer // seconds of a call; nil: it has no handler
	Events  []EventCounters
	Errors  func(kind string) Counter
}

// EventCounters count what a target said of the events of a route.
type EventCounters struct{ Delivered, Retried, Rejected Counter }

// Counter is a metric.
type Counter interface {
	Inc()
	Add(n float64)
}

// Observer is a metric of a distribution.
type Observer interface{ Observe(value float64) }

// Route is the route of a worker. Its methods are called without a lock.
type Route interface {
	Now() time.Time
	// Report tells the checkpoint the progress of entries. It is called when a target is done with
	// them and the batch goes on with something that takes time.
	Report(entries []*queue.Entry)
	// Pause stops the route, which was to be done because of a delta. bySink: a sink wants it.
	Pause(d *event.Delta, target string, reason error, bySink bool)
	// Refused is called with a delta that is given up.
	Refused(d *event.Delta)
	// Complain logs a message about failures, at most once in a while for each message.
	Complain(message string, d *event.Delta, target string, err error)
	// PassOn gives all events of an entry to the route that a target is, or none, and marks the
	// target as done in the same step. A worker that is patient waits a little for room. The error
	// says why they were not given.
	PassOn(ctx context.Context, target int, e *queue.Entry, patient bool) error
}
