package api

import (
	"context"
	"encoding/json"
	"errors"
	"time"
)

// ErrNoLetters is the answer of a router that keeps no dead letters.
var ErrNoLetters = errors.New("this router keeps no dead letters: set state.dir in its configuration")

// Letter is a dead letter as the API shows it.
type Letter struct {
	ID       uint64    `json:"id"`
	Time     time.Time `json:"time"`
	Route    string    `json:"route"`
	Sink     string    `json:"sink,omitempty"` // that refused it; empty: it did not get as far
	Error    string    `json:"error"`
	Attempts int       `json:"attempts"`
	Delta    Delta     `json:"delta"`
}

// Delta is the delta of a dead letter. Object is the state that it is about, for a delete the last
// one, OldObject the one before; in lists both are left out, of a Secret they are only its
// identity.
type Delta struct {
	Op              string          `json:"op"`
	Source          string          `json:"source"`
	Key             string          `json:"key"`
	UID             string          `json:"uid,omitempty"`
	ResourceVersion string          `json:"resourceVersion,omitempty"`
	Initial         bool            `json:"initial,omitempty"`
	Stale           bool            `json:"stale,omitempty"`
	Redelivered     bool            `json:"redelivered,omitempty"`
	Object          json.RawMessage `json:"object,omitempty"`
	OldObject       json.RawMessage `json:"oldObject,omitempty"`
	// what another route made of it; absent: it came from its source
	Event *Event `json:"event,omitempty"`
}

// Event is what a route has made of a delta, and given to another one.
type Event struct {
	ID      string          `json:"id"`
	Type    string          `json:"type"`
	Subject string          `json:"subject"`
	Route   string          `json:"route"`
	Data    json.RawMessage `json:"data,omitempty"`
}

// Selection names dead letters: by their ids, or all that a route has at the moment.
type Selection struct {
	IDs   []uint64 `json:"ids,omitempty"`
	Route string   `json:"route,omitempty"`
}

// Outcome is what came of a retry or drop.
type Outcome struct {
	// letters that go to their routes again, or that were dropped
	Done int `json:"done"`
	// dropped by a retry with current: their objects are not there any more
	Gone   int       `json:"gone,omitempty"`
	Failed []Failure `json:"failed,omitempty"` // at most 100 of them
	// NotDone counts all that failed; they are as they were.
	NotDone int `json:"notDone,omitempty"`
}

// Failure says why a letter could not be put through again, and what to do.
type Failure struct {
	ID    uint64 `json:"id"`
	Error string `json:"error"`
}

// MaxFailures is how many an Outcome names.
const MaxFailures = 100

// Fail adds a failure.
func (o *Outcome) Fail(id uint64, err error) {
	o.NotDone++
	if len(o.Failed) < MaxFailures {
		o.Failed = append(o.Failed, Failure{id, err.Error()})
	}
}

// DeadLetters is what the API asks for dead letters. It is called from any goroutine.
type DeadLetters interface {
	// Letters returns the letters of a route (empty: of all) that came after the given id, at most
	// limit, without their objects.
	Letters(ctx context.Context, route string, after uint64, limit int) ([]Letter, error)
	// Letter returns one with its objects; nil: it is not there.
	Letter(id uint64) (*Letter, error)
	Changer
}

// Changer puts dead letters through again, or drops them.
type Changer interface {
	// Retry returns when the letters are pending again, not when they are delivered. With current,
	// an object's present state goes to the route instead of the one that the letter holds.
	Retry(ctx context.Context, which Selection, current bool) (Outcome, error)
	Drop(ctx context.Context, which Selection) (Outcome, error)
}

// Status is what the router is doing.
type Status struct {
	Ready bool `json:"ready"` // as /readyz says it
	// of which /readyz has only the names of those that are not OK
	Checks  []Check        `json:"checks"`
	Sources []SourceStatus `json:"sources"`
	Routes  []RouteStatus  `json:"routes"`

	Handlers []HandlerStatus `json:"handlers"` // that are open
}

// HandlerStatus tells what a handler runs.
type HandlerStatus struct {
	Name string `json:"name"`
	Kind string `json:"kind"`
	// of the module or program that runs, in hexadecimal digits
	SHA256 string `json:"sha256,omitempty"`
}

// SourceStatus is the state of a source.
type SourceStatus struct {
	Name   string `json:"name"`
	Synced bool   `json:"synced"`
	Reason string `json:"reason,omitempty"` // why it is not synced
}

// RouteStatus is the state of a route.
type RouteStatus struct {
	Name        string     `json:"name"`
	Pending     int        `json:"pending"`
	OnDisk      int        `json:"onDisk,omitempty"`  // of these, how many are not in memory
	Oldest      *time.Time `json:"oldest,omitempty"`  // when the oldest pending delta was seen
	Waiting     bool       `json:"waiting,omitempty"` // for sources that it looks things up in
	Paused      string     `json:"paused,omitempty"`  // why
	HeldBy      string     `json:"heldBy,omitempty"`  // its downstream route that has no room
	DeadLetters int        `json:"deadLetters"`
}
