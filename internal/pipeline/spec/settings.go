package spec

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/deltarouter/deltarouter/internal/allowance"
	"github.com/deltarouter/deltarouter/internal/backoff"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/filters"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// Settings specify the deltas that a route takes, how to handle them, and where to deliver the
// events. They are the third and last form of a route, after config.Route (the YAML) and
// compile.Route (checked, with its programs): the caller fills the fields, and [Settings.Prepare]
// completes them. They are immutable from then on.
type Settings struct {
	Name string
	// ID identifies the route when its Name changes: its backlog, the state of its rules and its
	// dead letters are stored under it. Empty: the Name.
	ID string
	// Version: two Routes with the same id and the same version, if it is not empty, are the same.
	// pipeline.Prepare leaves such a route unchanged.
	Version string
	Sources []string
	// Downstream: the route gets events of upstream routes (NamedSink.Route), and no deltas of
	// Sources.
	Downstream bool
	Ops        []event.Op
	// Scope bounds the objects that the route sees: no expression of it is evaluated for others.
	// nil: all.
	Scope *filters.Scope
	// Allowance limits the cost of the filters and keys that are evaluated for a source, together
	// with those of the other routes of the owner. nil: it is not limited.
	Allowance *allowance.Owner
	Filter    filters.Filter // nil: no filter
	// When replaces the Filter of the route if it has a Filter itself, see [When].
	When When
	// Hold is the length of a delete hold: a delete or deselection is reported after this time, and
	// dropped if an object with that name, or that Key, is created before. Held deletes are part of
	// the records of Pipeline.Dirty. The fields of When other than Filter are used for it. 0: a
	// delete is pending at once.
	Hold time.Duration
	// Key returns the key that orders the deltas; nil: the object. An error that wraps
	// cel.ErrAbsent means that the object has no such key, and is ordered by itself; any other
	// error rejects the delta.
	Key func(ctx context.Context, d *event.Delta) (string, error)
	// Ready is closed once Filter and Key may be evaluated, because the objects that they look up
	// are in the cache. Until then deltas are pending unseen, and none is processed. nil: at any
	// time.
	Ready <-chan struct{}
	Limit Limit

	// With returns the JSON object of Delta.With; nil: the route has none. It is called before the
	// handler. An error rejects the delta, unless ctx has ended.
	With        func(ctx context.Context, d *event.Delta) ([]byte, error)
	Cached      Cached
	Handler     plugins.Handler // nil: the delta itself is the event, see chain.Event
	HandlerName string
	Sinks       []NamedSink

	Existing bool // also take objects that existed before the route
	// Known: the route existed before, in an earlier process or until a reload removed it, so
	// existing objects are not new to it.
	Known    bool
	Deliver  Deliver
	Overflow Overflow

	// Secret: objects of the route must not reach the disk. Its dead letters have no error, because
	// a handler or a receiver may repeat content in it.
	Secret bool

	Debounce Debounce
	// Shadow: the sinks deliver nothing, so nothing is said to be delivered.
	Shadow bool
	// Grouped: Key names groups. A batch has deltas of one group only, and waits for Batch.Wait
	// from the first of them on, or for the quiet period of Debounce, unless it is full before.
	Grouped bool
	// Joint, of a Grouped route: the Handler makes the events of a batch when it gets its last
	// delta. The deltas of a batch end together: none is done before all are.
	Joint bool
	// MaxAge is the maximum age of a delta at its delivery; older ones become dead letters, or are
	// dropped if OnFailure says so. The age counts from when the delta was seen, for a report of a
	// timer from its due time, and for a redelivery from its start. 0: no maximum.
	MaxAge time.Duration

	Batch       Batch
	Concurrency int // workers; 0: 1
	// the number of pending deltas in memory beyond which they go to disk, or Overflow applies; 0:
	// 10000
	Capacity int
	// Bytes likewise limits the bytes of memory that they take. 0: 64 MiB.
	Bytes int64
	// Disk is the number of bytes of pending deltas that the route may have on disk, including
	// those that are in memory, too, before Overflow applies. 0: no delta goes to disk only, except
	// those that are there already.
	Disk      int64
	Retry     Retry
	OnFailure OnFailure

	// set by Prepare
	table   *filters.Table // of this route only
	count   Counters
	log     *slog.Logger
	born    int  // the pipeline's epoch when the route appeared, see filters.Entry
	inOrder bool // see WritesInOrder
	ends    bool // see DeliversEnds
}

// Breaker returns the key of the circuit breaker of the sink. Routes with the same key share the
// breaker.
func (s *NamedSink) Breaker() string { return s.Name + "\x00" + s.Version }

// DeliversEnds reports whether the route delivers the end of an object. If it has delivered a state
// of the object, it must do so after a crash, too, so the object must be on disk before. A
// condition needs no object on disk: its reports wait until its own state is there, see [When].
func (s *Settings) DeliversEnds() bool { return s.ends }

// WritesInOrder reports whether a write may have several deltas of one key. If a rejected delta
// pauses the route, it may not: the delta is retried after the pause, so the ones behind it must
// not be delivered before.
func (s *Settings) WritesInOrder() bool { return s.inOrder }

func (s *Settings) writesInOrder() bool {
	return s.OnFailure != Pause && !slices.ContainsFunc(s.Sinks, func(s NamedSink) bool { return s.Route == "" && !s.InOrder })
}

// NamedSink is a target of a route: a sink or another route. Routes that name the same sink share
// its breaker. The slice of events passed to Write is reused after Write returns.
type NamedSink struct {
	Name    string // identifies the sink in the progress of deltas, also in the checkpoint
	Version string // differs for two sinks of one name; they do not share a breaker
	Sink    plugins.Sink
	Of      string // the only route with the sink, for the log; empty: others may have it
	InOrder bool   // a Write may have several deltas of one key, see plugins.Ordered
	// Behind are the names of the sinks to which the receiver delivers. A dead letter of one of
	// them is redelivered to it alone, see transit.State.Only.
	Behind []string
	// Route is the name of a downstream route, which gets each event as a delta with that Event;
	// Sink is nil then. Empty: the target is a sink.
	Route string
}

// Cached finds the objects of deltas in the cache.
type Cached struct {
	// Object returns the cached object of a delta, of which the handler makes events again that
	// were made of an outdated state; nil: it is not known. It must not block. Object may be nil.
	Object func(d *event.Delta) *event.Object
	// Whole is closed once the cache has the whole objects of which the disk has only identities.
	// Restored deltas of such objects, and all deltas behind them, wait for it. nil: they need not.
	Whole <-chan struct{}
}

// Batch configures the batches of the handler.
type Batch struct {
	Size int           // the maximum number of deltas; 0: 1
	Wait time.Duration // how long an incomplete batch waits for more
}

// Deliver is the delivery mode of a route.
type Deliver uint8

// The modes of delivery.
const (
	Every  Deliver = iota // each delta
	Latest                // the net change of the pending deltas of an object
)

// Overflow is the policy for a delta that comes when the queue is full.
type Overflow uint8

// The modes of overflow.
const (
	// Coalesce merges the delta with the pending deltas of its object; see package pipeline on
	// memory.
	Coalesce Overflow = iota
	// Block makes the source wait, and with it all routes of that source.
	Block
	// DropOldest drops the oldest delta that was never attempted.
	DropOldest
)

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

// Delay returns the delay before the n-th retry in a row, from 1.
func (r Retry) Delay(n int) time.Duration { return r.Policy().Delay(n) }

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

// maxSinks is the maximum number of sinks of a route: one bit each.
const maxSinks = 64

// WithDefaults returns the settings with defaults for the fields that are 0.
func (s Settings) WithDefaults() Settings {
	s.ID = cmp.Or(s.ID, s.Name)
	s.Batch.Size = or(s.Batch.Size, 1)
	s.Concurrency = or(s.Concurrency, 1)
	s.Capacity = or(s.Capacity, 10_000)
	s.Bytes = or(s.Bytes, 64<<20)
	s.Retry.Backoff = or(s.Retry.Backoff, 200*time.Millisecond)
	s.Retry.Max = or(s.Retry.Max, 30*time.Second)
	s.Retry.MaxAge = or(s.Retry.MaxAge, 24*time.Hour)
	return s
}

func (s *Settings) check() error {
	if n := len(s.Sinks); n == 0 || n > maxSinks {
		return fmt.Errorf("route %q has %d sinks: give it 1 to %d", s.Name, n, maxSinks)
	}
	return nil
}

func or[T int | int64 | time.Duration](value, otherwise T) T {
	if value <= 0 {
		return otherwise
	}
	return value
}
