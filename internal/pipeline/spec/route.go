package spec

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/deltarouter/deltarouter/internal/pipeline/deliver"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/filters"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// Route says which deltas to take, what to make of them and where to deliver it.
type Route struct {
	Name string
	// ID is what the route is known by as long as it is there, whatever its Name is: its backlog,
	// what its rules know and its dead letters are kept under it. Empty: the Name.
	ID string
	// Version: two Routes of one id and one version that is not empty are the same.
	// pipeline.Prepare leaves such a route as it is.
	Version string
	Sources []string
	// Downstream: the route gets events of upstream routes (NamedSink.Route), and no deltas of
	// Sources.
	Downstream bool
	Ops        []event.Op
	Filter     filters.Filter // nil: everything
	// When, if it has a Filter, takes the place of the route's Filter: see there.
	When When
	// Hold is how long an object must be gone that is deleted or deselected: until then the delta
	// is held, and forgotten if an object of that name comes back, or one of that Key. What is held
	// is part of what Pipeline.Dirty hands over. When has what that needs, without a Filter. 0: it
	// is pending at once.
	Hold time.Duration
	// Key names what the delta is ordered by; nil: its object. An error that wraps expr.ErrAbsent
	// means that the object has no key of that kind, and it is ordered by itself; any other error
	// rejects the delta.
	Key func(ctx context.Context, d *event.Delta) (string, error)
	// Ready is closed once Filter and Key may be asked, because what they look up is there. Until
	// then deltas are pending unseen, and none is worked on. nil: at any time.
	Ready <-chan struct{}
	Limit Limit

	Handler     plugins.Handler // nil: the delta itself is the event, see chain.Event
	HandlerName string
	Sinks       []NamedSink

	Existing bool // take also the objects that were there before
	// Known: the route was there before, in a former run or until a reload removed it, so that what
	// exists is not new to it.
	Known    bool
	Deliver  Deliver
	Overflow Overflow

	// Secret: what the route sees must not reach the disk. Its dead letters do not say why they
	// were given up, because a handler or a receiver may repeat what it was given.
	Secret bool

	Debounce Debounce
	// Grouped: Key names groups. A batch has deltas of one group alone, and waits for Batch.Wait
	// from the first of them on, or for the quiet period of Debounce, unless it is full before.
	Grouped bool
	// Joint, of a route that is Grouped: the Handler makes the events of a batch of the result of
	// its last delta. The deltas of a batch have one fate: none is done with before all are.
	Joint bool
	// MaxAge is how old a delta may be that is delivered; older ones are put aside, or dropped if
	// OnFailure says so. Its age is counted from when it was seen, of what time made from when it
	// was due, for one that is redelivered from that on. 0: they may be of any age.
	MaxAge time.Duration

	Batch       Batch
	Concurrency int // workers; 0: 1
	// pending deltas in memory beyond which they go to disk, or Overflow decides; 0: 10000
	Capacity int
	// Disk is how many bytes the route may have pending on disk, what is in memory included, before
	// Overflow decides. 0: nothing is on disk alone, but what was before.
	Disk      int64
	Retry     Retry
	OnFailure OnFailure
}

// Breaker is what the routes have in common that share the breaker of the sink.
func (s *NamedSink) Breaker() string { return s.Name + "\x00" + s.Version }

// WritesInOrder reports whether a write may have several deltas of one key. Where a rejected delta
// pauses the route, those behind it must not have been delivered: it is tried again before them.
func (r *Route) WritesInOrder() bool {
	return r.OnFailure != Pause && !slices.ContainsFunc(r.Sinks, func(s NamedSink) bool { return s.Route == "" && !s.InOrder })
}

// NamedSink is a target of a route: a sink or another route. Routes that name one sink share its
// breaker. The slice of events that it is given to write is used again when it returns.
type NamedSink struct {
	Name    string // what the progress of deltas is kept under, also in the checkpoint
	Version string // differs for two sinks of one name; they do not share a breaker
	Sink    plugins.Sink
	InOrder bool // a Write may have several deltas of one key, see plugins.Ordered
	// Route is the name of a downstream route, which gets each event as a delta with that Event;
	// Sink is nil then. Empty: the target is a sink.
	Route string
}

// Batch says how many deltas a handler gets at once.
type Batch struct {
	Size int           // at most; 0: 1
	Wait time.Duration // how long an incomplete batch waits for more
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
	// it is coalesced with what is pending for its object, see package pipeline on memory
	Coalesce   Overflow = iota
	Block               // the source waits, and with it all routes of that source
	DropOldest          // the oldest one that was never attempted is dropped
)

type (
	// Retry says how often and how long to try again.
	Retry = deliver.Retry
	// OnFailure says what happens to a delta that was rejected for good.
	OnFailure = deliver.OnFailure
)

// What a route does about failures.
const (
	DeadLetter = deliver.DeadLetter
	Drop       = deliver.Drop
	Pause      = deliver.Pause
)

// maxSinks is how many sinks a route can have: one bit each.
const maxSinks = 64

// WithDefaults fills in what is 0.
func (r Route) WithDefaults() Route {
	r.ID = cmp.Or(r.ID, r.Name)
	r.Batch.Size = or(r.Batch.Size, 1)
	r.Concurrency = or(r.Concurrency, 1)
	r.Capacity = or(r.Capacity, 10_000)
	r.Retry.Backoff = or(r.Retry.Backoff, 200*time.Millisecond)
	r.Retry.Max = or(r.Retry.Max, 30*time.Second)
	r.Retry.MaxAge = or(r.Retry.MaxAge, 24*time.Hour)
	return r
}

func (r *Route) check() error {
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
