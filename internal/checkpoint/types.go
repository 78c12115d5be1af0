package checkpoint

import (
	"time"

	"github.com/deltarouter/deltarouter/internal/fingerprint"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// Watch is the saved state of one watch.
type Watch struct {
	// Cluster is the identity of the cluster of the objects, from the last cut, or otherwise from
	// [DB.Cluster].
	Cluster string
	// Applied is the applied resourceVersion of the watch; empty if no cut has it.
	Applied string
	// Reached is the latest resourceVersion of which something is applied; empty: that of Fed.
	Reached string
	// Relisting: the cut was made during a relist. Objects is neither the old list nor the new one,
	// and the watch must not resume from Fed.
	Relisting bool
	Kept      string // see WatchCut; empty: no cut has it
	Objects   []Object
	// Intents are objects of which a delta may have been delivered that no cut has yet, in the
	// order in which they were written.
	Intents []Intent
}

// Intent is an object of which a delta may have been delivered that no cut has.
type Intent struct {
	Identity

	// JSON is the state that was delivered last, as event.ParseObject takes it. Empty: only the
	// identity is known, which is so of Secrets, and of intents of a version before format 6.
	JSON string
}

// Object is one saved object.
type Object struct {
	JSON string // as event.ParseObject takes it
	Bare bool   // only the identity was kept: of Secrets, and if the cut said so
	// Past has the fingerprints of the values, if Bare; nil: there are none.
	Past *fingerprint.Past
}

// Identity names one incarnation of an object.
type Identity struct {
	Key event.Key
	UID string
}

// Pending is a delta that is not done at all sinks of its route.
type Pending struct {
	// ID is set by the route: unique in it, never used again, and ascending.
	ID    uint64
	Delta *event.Delta
	// Closed are the sinks that are done with the delta.
	Closed   []string
	Attempts int
	// Unlimited: the limit of the route has not been applied to the delta yet.
	Unlimited bool

	call   []byte // of a dead letter, see Letter.Call
	prints string // see printsOfDelta
}

// RuleRecord is the state of a rule of a route under a key. Kinds and values are defined by the
// packages that collect them: pipeline for rules about time, internal/engine for watches.
type RuleRecord struct {
	Kind  byte
	Key   []byte
	Value []byte // nil: removed
}

// Part selects a part of the backlog of a route by the ids, in their order. The zero Part is all of
// it.
type Part struct {
	After, Before uint64 // exclusive; 0: from the beginning, to the end
	Limit         int    // the largest number; 0: no limit
	Bytes         int64  // the delta with which the JSON reaches it is the last one; 0: no limit
}

// Backlog sums up the backlog of a route on disk.
type Backlog struct {
	N     int
	Bytes int64  // in the file, compressed
	Last  uint64 // the highest id; 0: nothing is pending
}

// Cut has the changes since the cut before, as of one instant: written in one transaction, or not
// at all. It sets or removes whole values, so that writing a cut twice has the same result.
type Cut struct {
	// Cluster is the identity of the cluster (the uid of the namespace kube-system), if all watches
	// agree. Empty: unchanged.
	Cluster  string
	Watches  []WatchCut
	Routes   []RouteCut
	Memories []MemoryCut
}

// WatchCut has the changes of a watch. Reset comes first, then Deleted, then Put.
type WatchCut struct {
	ID string
	// Cluster is the identity of the cluster of the objects. Empty: unchanged.
	Cluster   string
	Applied   string
	Reached   string // see Watch
	Relisting bool
	// Kept names the fields that all objects have, of a watch with `cache: auto`. Empty: unchanged.
	Kept string
	// Reset removes the objects and intents that were saved before.
	Reset bool
	// Put has the objects that were added or changed. Each supersedes the intent of its uid, unless
	// that has a later state.
	Put []*event.Object
	// Deleted has the removed incarnations, including those that came and went since the last cut:
	// the uid shows which intent ends. An object with the same key in Put is another incarnation.
	// An empty UID ends no intent.
	Deleted []Identity
	// BareOnly keeps only the identity of the objects in Put. Objects of the core group's secrets
	// are kept so in any case.
	BareOnly bool
}

// RouteCut has the changes of the backlog of a route, and of the state of its rules about time.
// Removed comes first, then Put.
type RouteCut struct {
	Name    string // the id of the route
	Put     []Pending
	Removed []uint64
	Rules   []RuleRecord // of one kind and key the last one counts
}

// MemoryCut has the changes of the kv of a handler. Removed comes first, then Put.
type MemoryCut struct {
	Handler string
	Put     []Value
	Removed []string
}

// Value is a value of the kv of a handler.
type Value struct {
	Key     string // not empty
	Value   []byte
	Expires time.Time // zero: never
}

// Empty reports whether there is nothing to write. A Cluster alone does not count: see
// [DB.Cluster].
func (c *Cut) Empty() bool { return len(c.Watches) == 0 && len(c.Routes) == 0 && len(c.Memories) == 0 }
