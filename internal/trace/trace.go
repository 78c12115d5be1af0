// Package trace records the way of deltas through the routes, for OpenTelemetry. It has the data of
// spans; package export sends them.
//
// A change is one trace, whose ID is derived from the change, see [Of]. Each route that takes the
// delta has one [Span] in it, with a step for each call of its handler and each write to a sink.
//
// The decision whether a span is exported falls at its end: those that the ratio samples, and all
// that failed. So a span collects its steps until then, in the memory of its delta's entry, bounded
// in number. A span does not survive the process: after a restart, the delta begins another span of
// the same trace.
package trace

import (
	"strings"
	"sync/atomic"
	"time"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// Result is the end of a delta in a route.
type Result string

// The results.
const (
	Delivered    Result = "delivered"
	Shadowed     Result = "shadowed" // a route with shadow would have delivered it
	Dropped      Result = "dropped"
	DeadLettered Result = "dead_lettered"
	Coalesced    Result = "coalesced"
)

// The further results of a [Hold]. Held is none of an end: the delta is delivered later, or
// cancelled.
const (
	Suppressed Result = "suppressed" // by the limit
	Held       Result = "held"
	Cancelled  Result = "cancelled" // it ended, or was undone, before it was reported
	Skipped    Result = "skipped"   // the condition held before the route began
)

// The rules of a [Hold], by their keys in the configuration.
const (
	RuleFor      = "for"
	RuleLimit    = "limit"
	RuleDebounce = "debounce"
	RuleBatch    = "batch"
	RuleExisting = "existing"
)

// Hold says that a rule of a route holds a delta back, or why the route never reports it.
type Hold struct {
	Result Result
	Rule   string
	// Until is when the rule ends, Latest when it ends at the latest if further deltas extend it.
	// Zero: the time is not known, or Latest is Until.
	Until, Latest time.Time
}

// Record is a finished span with the identity of its delta. It has no part of the object, and
// shares no memory with it.
type Record struct {
	*Span

	Route, Source, Op              string
	Kind, Namespace, Name, UID, RV string
	Seen, End                      time.Time
	Result                         Result
	Events                         int // the number of events of the delta
	Initial, Stale, Redelivered    bool
	Suppressed                     int
	Repeat                         int    // the number of the reminder; 0: it is none
	Into                           string // of a coalesced delta: the resourceVersion of the one that has its change
	Undone                         bool   // a coalesced delta and a later one have cancelled each other
	Hold                           Hold   // of a record of Tracer.Hold, whose Span is empty
}

// Output takes the finished spans. Its methods do not block.
type Output interface {
	// Samples reports whether a trace is in the sampled share.
	Samples(id ID) bool
	Export(r *Record)
}

// Tracer begins and ends spans. A nil or zero Tracer is off. It is safe for concurrent use.
type Tracer struct {
	output  atomic.Pointer[Output]
	history atomic.Pointer[func(*Record)]
}

// Use sets the output; nil turns tracing off.
func (t *Tracer) Use(o Output) {
	if o == nil {
		t.output.Store(nil)
		return
	}
	t.output.Store(&o)
}

// Keep sets a function that takes all finished spans, sampled or not, and the records of
// [Tracer.Hold]; nil: none. It must return at once.
func (t *Tracer) Keep(take func(*Record)) {
	if take == nil {
		t.history.Store(nil)
		return
	}
	t.history.Store(&take)
}

// On reports whether deltas have spans.
func (t *Tracer) On() bool { return t != nil && (t.output.Load() != nil || t.history.Load() != nil) }

// Keeps reports whether there is a function of [Tracer.Keep].
func (t *Tracer) Keeps() bool { return t != nil && t.history.Load() != nil }

// Begin returns the span of a delta that becomes pending in a route; nil: nothing takes it. matched
// is zero if the delta is restored from disk.
func (t *Tracer) Begin(d *event.Delta, matched time.Time) *Span {
	if !t.On() {
		return nil
	}
	s := &Span{Matched: matched, kept: t.history.Load() != nil}
	o := t.output.Load()
	if o == nil {
		return s
	}
	id := Of(d)
	s.traced, s.Context = true, Context{id, newSpanID(), (*o).Samples(id)}
	if d.Event != nil {
		s.Parent = parentOf(d.Event.TraceParent)
	}
	return s
}

// End ends the span of a delta: it exports it if it is sampled or failed, and the history takes it.
// fill adds the fields of the record that the delta does not have.
func (t *Tracer) End(s *Span, d *event.Delta, fill func(*Record)) {
	if !s.Wanted() || !t.On() {
		return
	}
	r := recordOf(s, d)
	fill(r)
	if out := t.output.Load(); out != nil && s.Exported() {
		(*out).Export(r)
	}
	if keep := t.history.Load(); keep != nil && s.kept {
		(*keep)(r)
	}
}

// Hold passes what a route does not report, or not yet, to the function of [Tracer.Keep]. Without
// one it does nothing.
func (t *Tracer) Hold(route string, d *event.Delta, h Hold) {
	if !t.Keeps() {
		return
	}
	r := recordOf(&Span{}, d)
	r.Route, r.Result, r.Hold = route, h.Result, h
	if keep := t.history.Load(); keep != nil {
		(*keep)(r)
	}
}

func recordOf(s *Span, d *event.Delta) *Record {
	o := d.Object()
	return &Record{
		Span: s, Source: d.Source, Op: d.Op.String(), Kind: o.Resource().Kind,
		Namespace: strings.Clone(o.Key().Namespace), Name: strings.Clone(o.Key().Name), UID: strings.Clone(o.UID()), RV: strings.Clone(o.ResourceVersion()),
		Seen: d.Seen, Initial: d.Initial, Stale: d.Stale, Redelivered: d.Redelivered, Suppressed: d.Suppressed, Repeat: d.Repeat,
	}
}
