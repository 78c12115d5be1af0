// Package callrecord contains the records of failed calls of guests: everything that a guest got
// from the router. A dead letter keeps such a record, and `router plugin replay` repeats the call.
//
//	host ──Answer──► Record ──error──► dead letter ──JSON──► Replay ──Answer──► host
package callrecord

import (
	"errors"
	"time"

	"github.com/deltarouter/deltarouter/pkg/event"
)

const (
	// MaxSize bounds the deltas and answers of a record, in bytes before they are encoded.
	MaxSize = 256 << 10
	// MaxBatch bounds those of all records of a batch.
	MaxBatch = 16 * MaxSize
	// MaxHistory bounds those of the calls before the failed one.
	MaxHistory = 64 << 10
)

// Record is a failed call of a guest, and the calls before it since the start of the guest, as far
// as they fit.
type Record struct {
	Kind     string `json:"kind"`
	Handler  string `json:"handler"`
	Module   string `json:"module"`   // SHA-256 of the code of the handler
	Settings string `json:"settings"` // a hash of the other inputs of the guest
	Error    string `json:"error"`
	Fuel     int64  `json:"fuel"`  // of the whole call
	Delta    int    `json:"delta"` // the failed one, in the last call
	// With names the delta whose dead letter has the record of this call. Then Calls is empty.
	With string `json:"with,omitempty"`
	// Earlier is the number of calls of the guest before the first one in Calls.
	Earlier int `json:"earlier,omitempty"`
	// Before is the number of deltas of the guest before the first one in Calls.
	Before int `json:"before,omitempty"`
	// Omitted is the number of other deltas of the failed call, which did not fit.
	Omitted int `json:"omitted,omitempty"`
	// Incomplete: the answers to the start or to the failed call, or its delta, exceed MaxSize.
	Incomplete bool     `json:"incomplete,omitempty"`
	Start      []Answer `json:"start,omitempty"` // answers to the start of the guest
	Calls      []Call   `json:"calls,omitempty"` // the last one failed

	of   *Record // the record of the whole call that this one is made of
	size int     // 0: unknown
}

// Call is the input of one call of a guest.
type Call struct {
	Batch   []*event.Delta
	Clock   Clock
	Answers []Answer
}

// Clock is the state of the made-up clock before a call, in nanoseconds.
type Clock struct {
	Wall      int64 `json:"wall"`
	Monotonic int64 `json:"monotonic"`
}

// Answer is the answer of the host to one call of a host function.
type Answer struct {
	Function string
	Request  uint32 // a checksum
	Status   int32  // a negative one is that of package abi
	Fuel     int64  // of the host, to find the answer
	Value    int64  // of a clock
	Data     []byte
}

// Unanswered is the status of a request for which the fuel did not suffice.
const Unanswered = -1 << 31

// AnswerSize is the size of an answer without its data.
const AnswerSize = 64

// maxAlone bounds the answers in a record with one of several deltas, because each of them may have
// one.
const maxAlone = 32 << 10

// size returns the size of a call.
func (c *Call) size() int {
	n := 0
	for _, d := range c.Batch {
		n += deltaSize(d)
	}
	for i := range c.Answers {
		n += c.Answers[i].size()
	}
	return n
}

func (a *Answer) size() int { return AnswerSize + len(a.Data) }

// Size returns the size of a record.
func (r *Record) Size() int {
	if r.size > 0 {
		return r.size
	}
	for i := range r.Start {
		r.size += r.Start[i].size()
	}
	for i := range r.Calls {
		r.size += r.Calls[i].size()
	}
	return r.size
}

func deltaSize(d *event.Delta) int {
	n := AnswerSize + len(d.With)
	for _, o := range []*event.Object{d.New, d.Old} {
		if o != nil {
			n += len(o.JSON())
		}
	}
	if d.Event != nil {
		n += len(d.Event.Data)
	}
	return n
}

// For returns the record for the dead letter of a delta of the last call. If the call is too large,
// the record has this delta alone.
func (r *Record) For(delta int) *Record {
	fits, short := r.Size() <= MaxSize, *r
	if short.Delta = delta; fits {
		short.of = r
		return &short
	}
	short.size = 0
	n := len(r.Calls) - 1
	last := r.Calls[n]
	for i := range n {
		short.Before += len(r.Calls[i].Batch)
	}
	short.Earlier += n
	if short.Delta, short.Omitted = 0, len(last.Batch)-1; short.Omitted > 0 {
		last = last.alone(delta)
		short.Before += delta
		short.Incomplete = short.Incomplete || len(last.Answers) < len(r.Calls[n].Answers)
	}
	if short.Calls = []Call{last}; short.Size() > MaxSize {
		short.Calls, short.Start, short.Incomplete = nil, nil, true
	}
	return &short
}

// alone returns the call with one delta, and with the first answers.
func (c *Call) alone(delta int) Call {
	size, n := 0, 0
	for n < len(c.Answers) {
		if size += c.Answers[n].size(); size > maxAlone {
			break
		}
		n++
	}
	return Call{Batch: c.Batch[delta : delta+1], Clock: c.Clock, Answers: c.Answers[:n]}
}

// SameCall reports whether two records have the same calls. as may be nil.
func (r *Record) SameCall(as *Record) bool {
	return r == as || as != nil && r.of != nil && r.of == as.of
}

// Without returns the record without calls, for a dead letter beside that of the delta with, which
// has them.
func (r *Record) Without(with string) *Record {
	short := *r
	short.Calls, short.Start, short.With = nil, nil, with
	return &short
}

// attached is an error with the record of the call. nil: it was detached.
type attached struct {
	error

	record *Record
}

func (e *attached) Unwrap() error { return e.error }

// Attach adds the record of a call to its error. nil: there is none.
func Attach(err error, r *Record) error {
	if r == nil {
		return err
	}
	return &attached{err, r}
}

// Of returns the record that [Attach] added, or nil.
func Of(err error) *Record {
	if e, ok := errors.AsType[*attached](err); ok {
		return e.record
	}
	return nil
}

// Detach removes the records from an error, so that they can be freed before it.
func Detach(err error) {
	for e, ok := errors.AsType[*attached](err); ok; e, ok = errors.AsType[*attached](e.error) {
		e.record = nil
	}
}

// resource is the resource of an object in JSON.
type resource struct {
	Group    string `json:"group,omitempty"`
	Version  string `json:"version"`
	Resource string `json:"resource"`
	Cluster  string `json:"cluster,omitempty"`
	Kind     string `json:"kind,omitempty"`
}

// delta is a delta in JSON. The objects are texts, so that reformatting the JSON leaves them as the
// guest got them.
type delta struct {
	Op          string       `json:"op"`
	Source      string       `json:"source"`
	Resource    resource     `json:"resource"`
	Seen        time.Time    `json:"seen"`
	Initial     bool         `json:"initial,omitempty"`
	Stale       bool         `json:"stale,omitempty"`
	Late        bool         `json:"late,omitempty"`
	Redelivered bool         `json:"redelivered,omitempty"`
	Since       time.Time    `json:"since,omitzero"`
	Began       string       `json:"began,omitempty"`
	Repeat      int          `json:"repeat,omitempty"`
	Suppressed  int          `json:"suppressed,omitempty"`
	TraceParent string       `json:"traceParent,omitempty"`
	With        string       `json:"with,omitempty"`
	Event       *eventOfJSON `json:"event,omitempty"`
	New         string       `json:"new,omitempty"`
	Old         string       `json:"old,omitempty"`
}

// eventOfJSON is the event of an upstream route in JSON.
type eventOfJSON struct {
	ID      string    `json:"id"`
	Type    string    `json:"type"`
	Source  string    `json:"source"`
	Subject string    `json:"subject"`
	Route   string    `json:"route"`
	Time    time.Time `json:"time"`
	Data    string    `json:"data"`
}
