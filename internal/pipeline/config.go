package pipeline

import (
	"log/slog"

	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/internal/pipeline/backlog"
	"github.com/deltarouter/deltarouter/internal/pipeline/condition"
	"github.com/deltarouter/deltarouter/internal/pipeline/deliver"
	"github.com/deltarouter/deltarouter/internal/pipeline/route"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/internal/rules"
	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// Config is what a pipeline is made of. Handlers and sinks stay the caller's: it closes them after
// [Pipeline.Close].
type Config struct {
	Routes      []Route
	Metrics     *metrics.Metrics // nil: counted and thrown away
	Log         *slog.Logger     // nil: silent
	DeadLetters DeadLetterer     // nil: [LogDeadLetters], which keeps nothing but a line in the log
	// Store: what is pending outlives the process, by [Pipeline.Dirty], [Pipeline.Saved] and
	// [Pipeline.Restore], and what does not fit into memory is there alone. nil: nothing is tracked
	// for it.
	Store Store
	// bytes that all routes together may have pending on disk; beyond it Overflow decides. 0: no
	// limit but Route.Disk
	MaxDisk int64
	// bytes that a route may hold in memory on their way to the disk; beyond it the source waits
	// for the disk. 0: 16 MiB
	InFlight int64
	// Clock is what batches, retries and ages go by; what has to do with the disk, or with the end
	// of a route, takes real time. nil: the real one.
	Clock timer.Clock
	// Given is called with the events that a route has given to another, by that target. It returns
	// at once, and neither modifies nor keeps the slice. nil: it is not called.
	Given func(route string, sink NamedSink, events []event.Event)
	// Refused is called with a delta that a route wants and that does not get as far as its sinks
	// want: its limit suppressed it, or it was given up. It returns at once, and calls nothing of
	// the pipeline, which may hold a lock. nil: it is not called.
	Refused func(route string, d *event.Delta, suppressed bool)
}

// withDefaults fills in what is 0.
func (c Config) withDefaults() Config {
	if c.Metrics == nil {
		c.Metrics = metrics.New()
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Clock == nil {
		c.Clock = timer.Real()
	}
	if c.InFlight <= 0 {
		c.InFlight = inFlight
	}
	if c.DeadLetters == nil {
		c.DeadLetters = &LogDeadLetters{Log: c.Log}
	}
	return c
}

// inFlight is how much a route may hold on its way to the disk, in bytes of its objects' JSON.
const inFlight = 16 << 20

// newEnv makes what the routes of a pipeline share.
func newEnv(p *Pipeline) *route.Env {
	c := &p.cfg
	e := &route.Env{
		Log: c.Log, Metrics: c.Metrics, Store: c.Store, Letters: c.DeadLetters, Given: c.Given,
		Wheel: timer.NewWheel(c.Clock), Census: rules.NewCensus(), Stopping: p.life.stopping,
		Downstream: func(name string) *route.Route { return p.now.Load().downstream[name] },
	}
	e.Env = backlog.Env{Clock: c.Clock, InFlight: c.InFlight, MaxDisk: c.MaxDisk, Refused: c.Refused}
	if c.Store != nil {
		e.Soon = c.Store.Soon
	}
	e.Progress.Init()
	return e
}

// The configuration of a route.
type (
	// Route is [spec.Route].
	Route = spec.Route
	// NamedSink is [spec.NamedSink].
	NamedSink = spec.NamedSink
	// Batch is [spec.Batch].
	Batch = spec.Batch
	// Debounce is [spec.Debounce].
	Debounce = spec.Debounce
	// When is [spec.When].
	When = spec.When
	// Limit is [spec.Limit].
	Limit = spec.Limit
	// Deliver is [spec.Deliver].
	Deliver = spec.Deliver
	// Overflow is [spec.Overflow].
	Overflow = spec.Overflow
	// Retry is [deliver.Retry].
	Retry = deliver.Retry
	// OnFailure is [deliver.OnFailure].
	OnFailure = deliver.OnFailure
	// DeadLetterer is [deliver.DeadLetterer].
	DeadLetterer = deliver.DeadLetterer
	// LogDeadLetters is [deliver.LogDeadLetters].
	LogDeadLetters = deliver.LogDeadLetters
)

// The values of Deliver, Overflow and OnFailure.
const (
	Every  = spec.Every
	Latest = spec.Latest

	Coalesce   = spec.Coalesce
	Block      = spec.Block
	DropOldest = spec.DropOldest

	DeadLetter = deliver.DeadLetter
	Drop       = deliver.Drop
	Pause      = deliver.Pause
)

// The state of a route, and the store of its backlog.
type (
	// Status is [route.Status].
	Status = route.Status
	// Holding is [condition.Holding].
	Holding = condition.Holding
	// Store is [route.Store].
	Store = route.Store
)

// Errors of a route.
var (
	ErrStopped   = route.ErrStopped
	ErrNotPaused = route.ErrNotPaused
)
