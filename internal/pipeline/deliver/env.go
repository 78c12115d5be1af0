package deliver

import (
	"context"

	"github.com/deltarouter/deltarouter/internal/pipeline/queue"
	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// Env is the surroundings of the batches of a worker. Its functions and methods are called without
// a lock.
type Env struct {
	Clock    timer.Clock // of delays and ages
	Progress Progress
	Chain    Chain
	Letters  DeadLetterer
	// Permit is asked before each call of the handler and each write to a sink. If it returns
	// false, the call does not begin, and the entries stay pending. nil: all are permitted.
	Permit func() bool
}

// Progress gets the progress and the failures of a batch. The worker's route implements it.
type Progress interface {
	// Report passes the progress of entries to the checkpoint. It is called when a target is done
	// with them and a slow operation follows.
	Report(entries []*queue.Entry)
	// Pause pauses the route because of a delta. bySink: a sink requested it.
	Pause(d *event.Delta, target string, reason error, bySink bool)
	// Refused is called with a delta that is not delivered.
	Refused(d *event.Delta)
	// Complain logs a message about failures, each message at most once in an interval.
	Complain(message string, d *event.Delta, target string, err error)
}

// Chain hands events to downstream routes.
type Chain interface {
	// PassOn enqueues all events of an entry in the downstream route of a target, or none, and
	// marks the target as done under the same locks. A patient worker waits a little for room. The
	// error says why they were not enqueued.
	PassOn(ctx context.Context, target int, e *queue.Entry, patient bool) error
}

// Target is a target of a route.
type Target struct {
	Name string
	Sink *Sink // nil: another route, see Chain.PassOn
}
