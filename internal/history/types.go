package history

import (
	"time"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// Object identifies an object. An object that was created again has another UID.
type Object struct {
	Source string // its name in the configuration
	Kind   string // may be empty
	Key    event.Key
	UID    string
}

// Change is a delta of a source.
type Change struct {
	Object

	At   time.Time // when it was recorded
	Seen time.Time // when the router received it
	Op   event.Op
	// Initial: the object existed when the router saw it for the first time. Stale: the change was
	// inferred from a list, and states between may be missing.
	Initial, Stale bool
	// Version is the resourceVersion of the state after the change, or of the last state.
	Version string
	// Before and After are the states as JSON, with the fields that the cache keeps. Empty: there
	// is none, or it is not recorded, see Texts.
	Before, After string
	// Texts: the states are recorded.
	Texts bool

	was string // resourceVersion of Before; empty: unknown
}

// Outcome is the end of a delta in a route, or why it has none yet.
type Outcome uint8

// The outcomes. Their texts are those of metrics and traces.
const (
	Delivered    Outcome = iota + 1
	Dropped              // by the handler or by onFailure
	DeadLettered         // it is among the dead letters
	Coalesced            // a later delta of the object has its change
	Suppressed           // by the limit of the route
	Shadowed             // a route with shadow would have delivered it
	Held                 // a rule holds it back; another decision follows
	Cancelled            // its cause ended, or was undone, before it was reported
	Skipped              // its condition held before the route began, so it is never reported
)

var outcomeNames = [...]string{"", "delivered", "dropped", "dead_lettered", "coalesced", "suppressed", "shadowed", "held", "cancelled", "skipped"}

// String returns the outcome as in metrics.
func (o Outcome) String() string {
	if int(o) < len(outcomeNames) {
		return outcomeNames[o]
	}
	return "unknown"
}

// IsEnd reports whether it is the end of a delta that a route wanted. Held, Cancelled and Skipped
// are effects of a rule before that.
func (o Outcome) IsEnd() bool { return o != Held && o != Cancelled && o != Skipped }

// Decision is the end of a delta that a route wanted, or says that a rule holds it back.
type Decision struct {
	Object

	At      time.Time // when it was recorded: the end
	Route   string
	Op      event.Op
	Version string // resourceVersion of the object
	Outcome Outcome
	// Seen is the time of the change, Matched when it became pending in the route, and Taken when a
	// worker took it. Matched is zero if it was pending at the start, Taken if no worker took it.
	Seen, Matched, Taken        time.Time
	Initial, Stale, Redelivered bool
	Events                      int // that the handler made
	Suppressed                  int // deltas that the limit held back before this one
	Repeat                      int // the number of the reminder; 0: it is none
	// Rule is the rule that holds the delta back, by its key in the configuration: for, limit,
	// debounce, batch or existing. Empty: none does.
	Rule string
	// Until is when the rule ends, and Latest when it ends at the latest, if further deltas extend
	// it. Zero: the time is not known, or Latest is Until.
	Until, Latest time.Time
	// Into is the resourceVersion of the delta that has the change of a coalesced one. Undone: a
	// later delta has undone it, so nothing is left to deliver of both.
	Into   string
	Undone bool
	// Reason is that of the last failure; empty: there was none.
	Reason  string
	Steps   []Step
	Skipped int // steps that are not recorded, because there were too many
}

// Step is a call of the handler, a write to a sink or a hand-over to a downstream route.
type Step struct {
	Kind StepKind
	Name string // of the handler, sink or route
	At   time.Time
	Took time.Duration
	Size int    // deltas or events in the call
	Err  string // empty: it succeeded
}

// StepKind is a kind of [Step].
type StepKind uint8

// The kinds of steps.
const (
	Handle StepKind = iota
	Deliver
	Forward
)

var stepNames = [...]string{"handle", "deliver", "forward"}

// String returns the name of the kind.
func (k StepKind) String() string {
	if int(k) < len(stepNames) {
		return stepNames[k]
	}
	return "unknown"
}

// Lost reports records that are not in the history.
type Lost struct {
	At     time.Time
	Number int
	Reason string // why
}

// Begin is the start of the router, or of another configuration: from then on the history is that
// of these routes.
type Begin struct {
	At      time.Time `json:"-"`
	Router  string    `json:"router"`           // version of the program
	Cluster string    `json:"cluster"`          // name in the configuration
	Config  string    `json:"config"`           // hash of the configuration
	Reload  bool      `json:"reload,omitempty"` // the router was running before
	Sources []Source  `json:"sources"`
	Routes  []Route   `json:"routes"`
}

// Source is a source of a [Begin].
type Source struct {
	Name     string   `json:"name"`
	Resource string   `json:"resource"`
	Kept     []string `json:"kept,omitempty"` // the only fields that its objects have; absent: all
}

// Route is a route of a [Begin]. Its hash is another one if its rules are.
type Route struct {
	Name string   `json:"name"`
	From []string `json:"from"`
	Hash string   `json:"hash"`
}
