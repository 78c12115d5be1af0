package trace

import (
	"slices"
	"time"

	"github.com/deltarouter/deltarouter/internal/printable"
)

const (
	// maxLinks bounds the links of a span, maxSteps its steps. Further ones are counted.
	maxLinks = 32
	maxSteps = 32
	// maxText bounds the text of an error, in bytes.
	maxText = 512
)

// Span is the way of one delta through one route, from the moment in which it becomes pending to
// its end. It belongs to the entry of the delta in the queue. The methods of a nil Span do nothing:
// neither traces nor a history are on.
type Span struct {
	Context

	Parent   SpanID    // the span of the upstream route
	Matched  time.Time // when the delta became pending; zero: it was restored from disk
	Taken    time.Time // when a worker took it for the first time
	Links    []Context // the spans of absorbed deltas, and of the other members of a group
	Unlinked int       // the number of further ones
	Steps    []Step
	Skipped  int    // the number of further steps
	Reason   string // of the last failure; empty: there was none

	traced bool // for traces, and not only for the history
	kept   bool // for the history
	failed bool
	joined bool
	parent string // the value of TraceParent
}

// StepKind is a kind of [Step].
type StepKind uint8

// The kinds of steps.
const (
	Handle  StepKind = iota // a call of the handler
	Deliver                 // a write to a sink
	Forward                 // a hand-over to a downstream route
)

// Step is one attempt at a delta.
type Step struct {
	Kind       StepKind
	Name       string // of the handler or target
	Start, End time.Time
	Size       int    // the number of deltas, or of events, in the call
	Err        string // empty: it succeeded
}

// TraceParent returns the value of the header traceparent for the receivers of the events; empty:
// tracing is off.
func (s *Span) TraceParent() string {
	if s == nil || !s.traced {
		return ""
	}
	if s.parent == "" {
		s.parent = s.traceParent()
	}
	return s.parent
}

// Exported reports whether the span will be exported at its end.
func (s *Span) Exported() bool { return s != nil && s.traced && (s.Sampled || s.failed) }

// Wanted reports whether anything takes the span at its end.
func (s *Span) Wanted() bool { return s != nil && s.kept || s.Exported() }

// Exemplar returns the ID of the trace for the exemplar of a metric, in hexadecimal digits; empty
// if the span is not exported.
func (s *Span) Exemplar() string {
	if !s.Exported() {
		return ""
	}
	return s.TraceParent()[3:35]
}

// Take records that a worker took the delta.
func (s *Span) Take(now time.Time) {
	if s != nil && s.Taken.IsZero() {
		s.Taken = now
	}
}

// Add records a step. Of many steps the first and the last ones are kept.
func (s *Span) Add(step Step) {
	if s == nil {
		return
	}
	step.Err = cut(step.Err)
	if len(s.Steps) == maxSteps {
		s.Steps = slices.Delete(s.Steps, 1, 2)
		s.Skipped++
	}
	s.Steps = append(s.Steps, step)
}

// Blame sets the error of the last step.
func (s *Span) Blame(text string) {
	if s != nil && len(s.Steps) > 0 {
		s.Steps[len(s.Steps)-1].Err = cut(text)
	}
}

// Fail makes the span one that is exported regardless of the sampling. text is the reason.
func (s *Span) Fail(text string) {
	if s != nil {
		s.failed, s.Reason = true, cut(text)
	}
}

// Absorb links s to the span of a delta that was coalesced into that of s.
func (s *Span) Absorb(o *Span) {
	if s == nil || o == nil {
		return
	}
	s.link(o.Context)
	for _, c := range o.Links {
		s.link(c)
	}
	s.Unlinked += o.Unlinked
}

// Join links the span of the last member of a group to the others, and these to it.
func (s *Span) Join(members []*Span) {
	if s == nil || s.joined {
		return
	}
	s.joined = true
	for _, m := range members {
		if m != nil && m != s {
			s.link(m.Context)
			m.link(s.Context)
		}
	}
}

// Share makes the span of a member of a group fail like that of the last one.
func (s *Span) Share(last *Span) {
	if s != nil && last != nil {
		s.failed, s.Reason = s.failed || last.failed, last.Reason
	}
}

func (s *Span) link(c Context) {
	if c == (Context{}) {
		return // the span is for the history only
	}
	if len(s.Links) == maxLinks {
		s.Unlinked++
		return
	}
	s.Links = append(s.Links, c)
}

// cut bounds the text of an error. Protobuf encodes no request with text that is not UTF-8.
func cut(text string) string { return printable.Text(text, maxText) }
