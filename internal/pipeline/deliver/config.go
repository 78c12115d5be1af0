package deliver

import (
	"context"
	"time"

	"github.com/deltarouter/deltarouter/internal/pipeline/queue"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// Config is the configuration of delivery: the settings of the route with its opened targets. A
// batch ends with the Config that it began with.
type Config struct {
	*spec.Config

	Targets []Target // of Config.Sinks, in their order
	// InOrder: one write may have several deltas of a key.
	InOrder bool
	// Permit is asked before each call of the handler and each write to a sink. If it returns
	// false, the call does not begin, and the entries stay pending. nil: all are permitted.
	Permit func() bool
}

// Target is a target of a route.
type Target struct {
	Name string
	Sink *Sink // nil: another route, see Route.PassOn
}

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
