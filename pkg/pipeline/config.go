package pipeline

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/filters"
	"github.com/deltarouter/deltarouter/pkg/metrics"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/timer"
)

// Config is what a pipeline is made of. Handlers and sinks stay the caller's: it closes them after [Pipeline.Close].
type Config struct {
	Routes      []Route
	Metrics     *metrics.Metrics // nil: counted and thrown away
	Log         *slog.Logger     // nil: silent
	DeadLetters DeadLetterer     // nil: [LogDeadLetters], which keeps nothing but a line in the log
	// Store: what is owed outlives the process, by [Pipeline.Dirty], [Pipeline.Saved] and [Pipeline.Restore], and what does not fit into
	// memory is there alone. nil: nothing is tracked for it.
	Store    Store
	MaxDisk  int64 // bytes that all routes together may owe on disk; beyond it Overflow decides. 0: no limit but Route.Disk
	InFlight int64 // bytes that a route may hold in memory on their way to the disk; beyond it Overflow decides. 0: 16 MiB
	// Clock is what batches, retries and ages go by; what has to do with the disk, or with the end of a route, takes real time. nil: the
	// real one.
	Clock timer.Clock
	// Given is called with the events that a route has given to another, by the sink that feeds it. It returns at once, and neither modifies
	// nor keeps the slice. nil: nobody wants to know.
	Given func(route string, sink NamedSink, events []event.Event)
}

// Route says which deltas to take, what to make of them and where to deliver it.
type Route struct {
	Name string
	// Version: two Routes of one name and one version that is not empty are the same. [Pipeline.Prepare] leaves such a route as it is.
	Version string
	// Was is the name that the route had before: if there is no route of its own name, it takes over what that one owes.
	Was     string
	Sources []string
	// Fed: what comes is the events of other routes, by their NamedSink.Feeds, and nothing of Sources comes by itself.
	Fed    bool
	Ops    []event.Op
	Filter filters.Filter // nil: everything
	// When, if it has a Filter, takes the place of the route's Filter: see there.
	When When
	// Gone is how long an object must be gone that is deleted or deselected: until then the delta is held, and forgotten if an object of that
	// name comes back, or one of that Key. What is held is part of what [Pipeline.Dirty] hands over. When has what that needs, without a
	// Filter. 0: it is owed at once.
	Gone time.Duration
	// Key names what the delta is ordered by; nil: its object. An error that wraps expr.ErrAbsent means that the object has no key of
	// that kind, and it is ordered by itself; any other error rejects the delta.
	Key func(ctx context.Context, d *event.Delta) (string, error)
	// Ready is closed once Filter and Key may be asked, because what they look up is there. Until then deltas are owed unseen, and
	// none is worked on. nil: at any time.
	Ready <-chan struct{}
	Limit Limit

	Handler     plugins.Handler // nil: the delta itself is the event, see [event.Plain]
	HandlerName string
	Sinks       []NamedSink

	Existing bool // take also the objects that were there before
	// Known: the route was there before, in a former run or until a reload removed it, so that what exists is not new to it.
	Known bool
	// Renew: the route is made anew even if Version is the same, because it inherits, see [Change.Inherit].
	Renew    bool
	Deliver  Deliver
	Overflow Overflow

	Debounce Debounce
	// Grouped: Key names groups. A batch has deltas of one group alone, and waits for Batch.Wait from the first of them on, or for
	// the quiet period of Debounce, unless it is full before.
	Grouped bool
	// Joint, of a route that is Grouped: the Handler makes the events of a batch of the result of its last delta. The deltas of a batch have
	// one fate: none is done with before all are.
	Joint bool
	// MaxAge is how old a delta may be that is delivered; older ones are put aside, or dropped if OnFailure says so. Its age is counted from
	// when it was seen, of what time made from when it was due, for one that is redelivered from that on. 0: they may be of any age.
	MaxAge time.Duration

	Batch       Batch
	Concurrency int // workers; 0: 1
	Capacity    int // owed deltas in memory beyond which they go to disk, or Overflow decides; 0: 10000
	// Disk is how many bytes the route may owe on disk, what is in memory included, before Overflow decides. 0: nothing is on disk
	// alone, but what was before.
	Disk      int64
	Retry     Retry
	OnFailure OnFailure
}

// NamedSink is a sink and its name in the configuration. Routes that name one sink share its breaker. The slice of events that it is
// given to write is used again when it returns.
type NamedSink struct {
	Name    string
	Version string // differs for two sinks of one name; they do not share a breaker
	Sink    plugins.Sink
	// Feeds is the name of the route that is given the events, each as a delta that has it as its Event; Sink is nil then. Empty: none.
	Feeds string
}

// Batch says how many deltas a handler gets at once.
type Batch struct {
	Size int           // at most; 0: 1
	Wait time.Duration // how long an incomplete batch waits for more
}

// Retry says how often and how long to try again.
type Retry struct {
	Attempts int           // how often a rejected delta is tried again; 0: not at all
	Backoff  time.Duration // before the first try, doubled for each that follows, less up to half of it at random; 0: 200ms
	Max      time.Duration // the longest Backoff; 0: 30s
	MaxAge   time.Duration // how old a delta may become while a sink is unavailable; 0: 24h
	Exact    bool          // nothing is at random about Backoff
}

// Deliver says which deltas a route wants.
type Deliver uint8

// The modes of delivery.
const (
	Every  Deliver = iota // each one
	Latest                // the net change of what waits for an object
)

// Overflow says what happens to a delta that comes when the queue is full.
type Overflow uint8

// The modes of overflow.
const (
	Fold       Overflow = iota // it is folded with what waits for its object, see the package comment on memory
	Block                      // the source waits, and with it all routes of that source
	DropOldest                 // the oldest one that was never attempted is dropped
)

// OnFailure says what happens to a delta that was rejected for good, or that is older than Retry.MaxAge.
type OnFailure uint8

// What a route does about failures.
const (
	DeadLetter OnFailure = iota // it is put aside, and the route goes on
	Drop                        // it is dropped, counted
	Pause                       // the route stops and owes it, until the router is started anew
)

// maxSinks is how many sinks a route can have: one bit each.
const maxSinks = 64

// withDefaults fills in what is 0.
func (r Route) withDefaults() Route {
	r.Batch.Size = or(r.Batch.Size, 1)
	r.Concurrency = or(r.Concurrency, 1)
	r.Capacity = or(r.Capacity, 10_000)
	r.Retry.Backoff = or(r.Retry.Backoff, 200*time.Millisecond)
	r.Retry.Max = or(r.Retry.Max, 30*time.Second)
	r.Retry.MaxAge = or(r.Retry.MaxAge, 24*time.Hour)
	return r
}

func (r Route) check() error {
	if n := len(r.Sinks); n == 0 || n > maxSinks {
		return fmt.Errorf("route %q has %d sinks: give it 1 to %d", r.Name, n, maxSinks)
	}
	return nil
}

func or[T int | int64 | time.Duration](value, otherwise T) T {
	if value <= 0 {
		return otherwise
	}
	return value
}
