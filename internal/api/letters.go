package api

import (
	"context"
	"encoding/json"
	"errors"
	"time"
)

// errNoLetters is the answer of a router that keeps no dead letters.
var errNoLetters = errors.New("this router keeps no dead letters: set state.dir in its configuration")

// Letter is a dead letter in the form of the API.
type Letter struct {
	ID    uint64    `json:"id"`
	Time  time.Time `json:"time"`
	Route string    `json:"route"`
	// the sink that refused it; empty: it reached no sink
	Sink     string `json:"sink,omitempty"`
	Error    string `json:"error"`
	Attempts int    `json:"attempts"`
	Delta    Delta  `json:"delta"`
	// the record of the failed call of the handler, for router plugin replay, see package
	// callrecord; lists leave it out
	Call json.RawMessage `json:"call,omitempty"`
	// Standby says that a standby answers, with one letter; nil: another router
	Standby *Mirror `json:"standby,omitempty"`
}

// Delta is the delta of a dead letter. Object is the object after the change (for a delete its last
// state), and OldObject the object before. Lists leave both out. Of a Secret, both contain the
// identity only.
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
	// the event that another route made of the delta; absent: the delta came from its source
	Event *Event `json:"event,omitempty"`
}

// Event is the event that an upstream route made of a delta.
type Event struct {
	ID      string          `json:"id"`
	Type    string          `json:"type"`
	Subject string          `json:"subject"`
	Route   string          `json:"route"`
	Data    json.RawMessage `json:"data,omitempty"`
}

// Selection selects dead letters: by their ids, or all present ones of a route.
type Selection struct {
	IDs   []uint64 `json:"ids,omitempty"`
	Route string   `json:"route,omitempty"`
}

// Outcome is the result of a retry or drop.
type Outcome struct {
	// dead letters that were enqueued again, or dropped
	Done int `json:"done"`
	// dead letters that a retry with current dropped because their objects do not exist any more
	Gone   int       `json:"gone,omitempty"`
	Failed []Failure `json:"failed,omitempty"` // at most 100
	// NotDone counts all failures. These dead letters are unchanged.
	NotDone int `json:"notDone,omitempty"`
}

// Failure is the reason why a dead letter was not redelivered or dropped, with advice.
type Failure struct {
	ID    uint64 `json:"id"`
	Error string `json:"error"`
}

// maxFailures bounds the failures of an Outcome.
const maxFailures = 100

// Fail adds a failure.
func (o *Outcome) Fail(id uint64, err error) {
	o.NotDone++
	if len(o.Failed) < maxFailures {
		o.Failed = append(o.Failed, Failure{id, err.Error()})
	}
}

// DeadLetters gives the API access to dead letters. It is called from any goroutine.
type DeadLetters interface {
	// Letters returns at most limit dead letters of a route (empty: of all routes) behind the given
	// id, without their objects.
	Letters(ctx context.Context, route string, after uint64, limit int) ([]Letter, error)
	// Letter returns one dead letter with its objects; nil: it does not exist.
	Letter(ctx context.Context, id uint64) (*Letter, error)
	Changer
}

// Changer redelivers or drops dead letters.
type Changer interface {
	// Retry returns when the deltas are pending again, before they are delivered. With current, the
	// route gets the present state of each object instead of the state in the dead letter.
	Retry(ctx context.Context, which Selection, current bool) (Outcome, error)
	Drop(ctx context.Context, which Selection) (Outcome, error)
}

// Status is the state of the router.
type Status struct {
	Ready bool `json:"ready"` // the same as /readyz
	// /readyz shows only the names of those that are not OK
	Checks  []Check        `json:"checks"`
	Sources []SourceStatus `json:"sources"`
	Routes  []RouteStatus  `json:"routes"`

	Handlers []HandlerStatus `json:"handlers"` // the open handlers

	Fleet *FleetStatus `json:"fleet,omitempty"` // nil: the router is in none

	Objects []ObjectsStatus `json:"customResources,omitempty"` // nil: the configuration grants none
}

// ObjectsStatus says which objects of a kind are read for routes.
type ObjectsStatus struct {
	Kind       string   `json:"kind"`
	Namespaces []string `json:"namespaces"` // those with a grant; "*": all; null: the kind has none
}

// HandlerStatus describes a running handler.
type HandlerStatus struct {
	Name string `json:"name"`
	Kind string `json:"kind"`
	// hash of the running module or program, in hexadecimal digits
	SHA256 string `json:"sha256,omitempty"`
}

// SourceStatus is the state of a source.
type SourceStatus struct {
	Name   string `json:"name"`
	Synced bool   `json:"synced"`
	Reason string `json:"reason,omitempty"` // reason for not being synced
	// number of the namespaces that its namespaceSelector selects; nil: it has none
	Namespaces *int `json:"namespaces,omitempty"`
}

// RouteStatus is the state of a route.
type RouteStatus struct {
	Name    string     `json:"name"`
	Pending int        `json:"pending"`
	Bytes   int64      `json:"bytes,omitempty"`  // of memory that the pending deltas take
	OnDisk  int        `json:"onDisk,omitempty"` // pending deltas that are not in memory
	Oldest  *time.Time `json:"oldest,omitempty"` // time of the oldest pending delta
	// it waits for sources that it looks objects up in
	Waiting  bool     `json:"waiting,omitempty"`
	WaitsFor []string `json:"waitsFor,omitempty"` // the sources among them that have not synced
	Paused   string   `json:"paused,omitempty"`   // reason for the pause
	Shadow   bool     `json:"shadow,omitempty"`   // its events go nowhere
	// a full downstream route that holds this one back
	HeldBy string `json:"heldBy,omitempty"`
	// its filter or key is evaluated later, because those of its include or namespace take more CPU
	// than a source may spend on them; also for a minute after that
	Deferred    bool `json:"deferred,omitempty"`
	DeadLetters int  `json:"deadLetters"`
	// dead letters that newer ones have replaced since the start, because of their number or their
	// share of the state folder
	EvictedLetters int `json:"evictedLetters,omitempty"`
	// of a route whose deltas go to the workers of the fleet
	Workers *WorkersStatus `json:"workers,omitempty"`
	// absent at a standby, and of a route whose deltas go to the workers
	Counts *RouteCounts `json:"counts,omitempty"`
}

// RouteCounts are the deltas of a route since a time, over restarts with a state folder.
type RouteCounts struct {
	Since     time.Time `json:"since"`
	Matched   uint64    `json:"matched"` // all others, and the pending ones
	Delivered uint64    `json:"delivered"`
	HeldBack  uint64    `json:"heldBack"` // by the limit
	Coalesced uint64    `json:"coalesced"`
	Dropped   uint64    `json:"dropped"`
	// failures of filters, keys, the handler and sinks, of which a delta may have several
	Failed       uint64 `json:"failed"`
	DeadLettered uint64 `json:"deadLettered"`
	// of the time in which the route had a shadow
	Shadowed uint64 `json:"shadowed,omitempty"`
}

// WorkersStatus is the state of a route on the workers of the fleet.
type WorkersStatus struct {
	Partitions int    `json:"partitions"`
	Waiting    *int64 `json:"waiting,omitempty"` // deltas that they have not acknowledged; absent: unknown
}
