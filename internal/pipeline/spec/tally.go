package spec

import (
	"slices"
	"sync/atomic"
	"time"
)

// Counts are the deltas of a route since a time, over restarts. Matched are all others together and
// the pending ones; Failed counts failures, of which a delta may have several, and each may succeed
// at last.
type Counts struct {
	Since                                                            time.Time
	Matched, Delivered, Suppressed, Coalesced, Dropped, DeadLettered uint64
	Shadowed                                                         uint64 // of the time in which the route had a shadow: they would have been delivered
	// failed evaluations of filters and keys, calls of the handler and writes to sinks
	Failed uint64
}

// Tally counts the ends of the deltas of a route for [Counts], as the metrics do since the start of
// the process and under the name of the route. It is safe for concurrent use.
type Tally struct {
	Delivered, Suppressed, Coalesced, Dropped, DeadLettered, Failed, Shadowed atomic.Uint64
}

// tallied is a counter that a tally counts, too.
type tallied struct {
	Counter

	also *atomic.Uint64
}

// Inc implements Counter.
func (c tallied) Inc() {
	c.Counter.Inc()
	c.also.Add(1)
}

// Add implements Counter.
func (c tallied) Add(n float64) {
	c.Counter.Add(n)
	c.also.Add(uint64(n))
}

// failures are the kinds of errors that Counts.Failed has.
var failures = []string{"filter", "cost", "handler", "rejected", "unavailable"}

// Tally makes t count the same as the counters of the route. It is called once, before they are
// used.
func (s *Settings) Tally(t *Tally) {
	c, delivered := &s.count, &t.Delivered
	if s.Shadow {
		delivered = &t.Shadowed
	}
	c.Delivered, c.Suppressed, c.Coalesced = tallied{c.Delivered, delivered}, tallied{c.Suppressed, &t.Suppressed}, tallied{c.Coalesced, &t.Coalesced}
	c.Dropped, c.DeadLettered = tallied{c.Dropped, &t.Dropped}, tallied{c.DeadLettered, &t.DeadLettered}
	errors := c.Errors
	c.Errors = func(kind string) Counter {
		if slices.Contains(failures, kind) {
			return tallied{errors(kind), &t.Failed}
		}
		return errors(kind)
	}
}
