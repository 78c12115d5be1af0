package deliver

import (
	"context"
	"time"

	"github.com/deltarouter/deltarouter/internal/backoff"
	"github.com/deltarouter/deltarouter/internal/pipeline/queue"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// Config is the configuration of delivery. A batch ends with the Config that it began with.
type Config struct {
	Route, ID   string // name and id of the route, for events and dead letters
	Handler     plugins.Handler
	HandlerName string
	// With returns the values of the route's `with` for a delta; nil: there are none.
	With func(ctx context.Context, d *event.Delta) ([]byte, error)
	// Current returns the cached object of a delta, of which the handler makes events again that were
	// made of an outdated state; nil: it is not known. Current may be nil.
	Current func(d *event.Delta) *event.Object
	Targets []Target // at most 64
	// InOrder: one write may have several deltas of a key.
	InOrder   bool
	Retry     Retry
	OnFailure OnFailure
	MaxAge    time.Duration // the maximum age of a delta at its delivery; 0: none
	// Secret: dead letters have no error text.
	Secret bool
	Count  Counters
	// Permit is asked before each call of the handler and each write to a sink. If it returns
	// false, the call does not begin, and the entries stay pending. nil: all are permitted.
	Permit func() bool
}

// Target is a target of a route.
type Target struct {
	Name string
	Sink *Sink // nil: another route, see Route.PassOn
}

// Retry configures retries.
type Retry struct {
	Attempts int // the number of retries of a rejected delta; 0: none
	// the delay before the first retry, doubled for each further one, less up to half of it at
	// random; 0: 200ms
	Backoff time.Duration
	Max     time.Duration // the longest Backoff; 0: 30s
	MaxAge  time.Duration // the maximum age of a delta while a sink is unavailable; 0: 24h
	Exact   bool          // Backoff is not randomized
}

// Policy returns the delays between the attempts.
func (r Retry) Policy() backoff.Policy {
	return backoff.Policy{Min: r.Backoff, Max: r.Max, Exact: r.Exact}
}

// delay returns the delay before the n-th retry in a row, from 1.
func (r Retry) delay(n int) time.Duration { return r.Policy().Delay(n) }

// OnFailure is the policy for a delta that was rejected for good, or that is older than
// Retry.MaxAge.
type OnFailure uint8

// The policies for rejected deltas.
const (
	// DeadLetter stores the delta as a dead letter, and the route goes on.
	DeadLetter OnFailure = iota
	// Drop drops the delta and counts it.
	Drop
	// Pause keeps the delta and pauses the route until it is resumed or changed, or the router
	// restarts.
	Pause
)

// Counters are metrics of a route.
type Counters struct {
	Handler Observer // seconds of a call; nil: there is no handler
	Events  []EventCounters
	Errors  func(kind string) Counter
}

// EventCounters count the results of a target for the events of a route.
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
	// Report passes the progress of entries to the checkpoint. It is called when a target is done
	// with them and a slow operation follows.
	Report(entries []*queue.Entry)
	// Pause pauses the route because of a delta. bySink: a sink requested it.
	Pause(d *event.Delta, target string, reason error, bySink bool)
	// Refused is called with a delta that is not delivered.
	Refused(d *event.Delta)
	// Complain logs a message about failures, each message at most once in an interval.
	Complain(message string, d *event.Delta, target string, err error)
	// PassOn enqueues all events of an entry in the downstream route of a target, or none, and
	// marks the target as done under the same locks. A patient worker waits a little for room. The
	// error says why they were not enqueued.
	PassOn(ctx context.Context, target int, e *queue.Entry, patient bool) error
}
