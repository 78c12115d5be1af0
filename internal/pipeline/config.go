package pipeline

import (
	"log/slog"

	"github.com/deltarouter/deltarouter/internal/complaints"
	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/internal/pipeline/condition"
	"github.com/deltarouter/deltarouter/internal/pipeline/deliver"
	"github.com/deltarouter/deltarouter/internal/pipeline/route"
	"github.com/deltarouter/deltarouter/internal/pipeline/rules"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/internal/trace"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// Config is the configuration of a pipeline. The caller owns handlers and sinks, and closes them
// after [Pipeline.Close].
type Config struct {
	Routes  []spec.Settings
	Metrics *metrics.Metrics // nil: metrics of its own
	Log     *slog.Logger     // nil: silent
	// Complaints bound the log lines that many routes have for one reason; nil: the pipeline has
	// its own, which write to Log.
	Complaints  *complaints.Log
	DeadLetters deliver.DeadLetterer // nil: [LogDeadLetters], which only logs them
	// Store makes the pipeline durable: pending deltas survive the process, by [Pipeline.Dirty],
	// [Pipeline.Saved] and [Pipeline.Restore], and deltas that exceed the memory are only there.
	// nil: changes are not tracked.
	Store Store
	// the bytes that all routes together may have pending on disk; beyond it Overflow applies. 0:
	// only Route.Disk applies
	MaxDisk int64
	// the bytes that all routes of an owner, see [checkpoint.Owner], may have pending in memory,
	// where each route may have one delta anyway, and on disk. 0: no limit
	OwnedMemory, OwnedDisk int64
	// the keys that the limits of all routes of an owner may have, where each limit may have one
	// anyway. 0: no limit
	OwnedKeys int64
	// the objects that the conditions and delete holds of all routes of an owner may track; beyond
	// it a condition does not begin, and a delete that would be held becomes a dead letter. 0: no
	// limit
	OwnedObjects int64
	// the bytes that a route may hold in memory on their way to the disk; beyond it the source
	// waits for the disk. 0: 16 MiB
	InFlight int64
	// Clock is the clock of batches, retries and ages; waits for the disk and for the end of a
	// route use real time. nil: the real clock.
	Clock timer.Clock
	// Permit is asked before each call of a handler and each write to a sink. If it returns false,
	// the call does not begin, and its deltas stay pending. It must return at once. nil: all are
	// permitted.
	Permit func() bool
	// Tracer traces the deltas; nil: they are not traced.
	Tracer *trace.Tracer
	// Given is called with the events that a route has handed to a downstream route, which is the
	// sink. It must return at once, and neither modify nor keep the slice. nil: it is not called.
	Given func(route string, sink spec.NamedSink, events []event.Event)
	// Refused is called with a delta that a route wants and that does not reach all its sinks: the
	// limit suppressed it, or it was rejected for good. It must return at once, and must not call
	// the pipeline, which may hold a lock. nil: it is not called.
	Refused func(route string, d *event.Delta, suppressed bool)
	// Settled is called with the numbers of deltas, see [Work], that the route is done with: they
	// were delivered, dropped or dead-lettered. It must return at once and not keep the slice. nil:
	// it is not called.
	Settled func(route string, numbers []uint64)
	// Part: several pipelines in the process have these routes. Each counts deltas, but the gauges
	// and the function before a scrape are the caller's.
	Part bool
}

// withDefaults returns c with defaults for the fields that are 0.
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
		c.DeadLetters = &deliver.LogDeadLetters{Log: c.Log}
	}
	return c
}

// inFlight is the default of Config.InFlight, in bytes of the JSON of the objects.
const inFlight = 16 << 20

// newEnv returns the environment that the routes of a pipeline share.
func newEnv(p *Pipeline) *route.Env {
	c := &p.cfg
	e := &route.Env{
		Log: c.Log, Complaints: c.Complaints, Metrics: c.Metrics, Store: c.Store, Letters: c.DeadLetters, Given: c.Given, Settled: c.Settled, Part: c.Part, Permit: c.Permit,
		Wheel: timer.NewWheel(c.Clock), Census: rules.NewCensus(), Stopping: p.life.stopping,
		Downstream: func(name string) *route.Route { return p.now.Load().downstream[name] },
	}
	if e.Complaints == nil {
		e.Complaints = complaints.New(c.Log)
	}
	e.Storage = route.Storage{Clock: c.Clock, InFlight: c.InFlight, MaxDisk: c.MaxDisk, Refused: c.Refused, Tracer: c.Tracer}
	e.Shares.Memory, e.Shares.Disk = c.OwnedMemory, c.OwnedDisk
	e.Shares.Keys, e.Shares.Objects = c.OwnedKeys, c.OwnedObjects
	if c.Store != nil {
		e.Soon = c.Store.Soon
	}
	e.Progress.Init()
	return e
}

// The state of a route, and the store of its backlog.
type (
	// Status is [route.Status].
	Status = route.Status
	// Counts is [spec.Counts].
	Counts = spec.Counts
	// Misses is [route.Misses].
	Misses = route.Misses
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
