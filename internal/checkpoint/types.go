package checkpoint

import (
	"time"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// Watch is what the state file knows of one watch.
type Watch struct {
	// Cluster is the identity of the cluster that the objects are of: what the last cut said, or
	// else what [DB.Cluster] says.
	Cluster string
	// Fed is the resourceVersion up to which the watch had been fed into its store; empty if no cut
	// holds it.
	Fed string
	// Relisting: the cut was made inside a relist. Objects is neither the old list nor the new one,
	// and Fed must not be resumed from.
	Relisting bool
	Objects   []Object
	// Intents are objects of which something may have been delivered that no cut holds yet. They
	// come in the order in which they were written.
	Intents []Intent
}

// Intent is an object of which something may have been delivered that no cut holds.
type Intent struct {
	Identity

	// JSON is the state that was delivered last, as event.ParseObject takes it. Empty: only the
	// identity is known, which is so of Secrets, and of what a version before format 6 wrote.
	JSON string
}

// Object is one saved object.
type Object struct {
	JSON string // as event.ParseObject takes it
	Bare bool   // only the identity was kept: of Secrets, and where the cut said so
}

// Identity names one incarnation of an object.
type Identity struct {
	Key event.Key
	UID string
}

// Pending is a delta that a route has not acknowledged.
type Pending struct {
	// ID is given by the route: unique in it and never used again, in the order in which the deltas
	// came.
	ID    uint64
	Delta *event.Delta
	// Closed are the sinks that are done with the delta.
	Closed   []string
	Attempts int
	// Unlimited: the limit of the route was not asked about the delta yet.
	Unlimited bool
}

// RuleRecord is what a rule of a route knows under a key. Kinds and values are the affair of those
// who collect them: package pipeline for rules about time, internal/router/watches for watches.
type RuleRecord struct {
	Kind  byte
	Key   []byte
	Value []byte // nil: nothing any more
}

// Part selects some of the backlog of a route, by the ids, in their order. The zero Part is all of
// it.
type Part struct {
	After, Before uint64 // exclusive; 0: from the beginning, to the end
	Limit         int    // at most so many; 0: no limit
}

// Backlog sums up the backlog of a route on disk.
type Backlog struct {
	N     int
	Bytes int64  // that it takes in the file, compressed
	Last  uint64 // the highest id; 0: nothing is pending
}

// Cut is what changed in one instant since the cut before: written in one transaction, or not at
// all. What it names it sets or removes, so that writing a cut twice is writing it once.
type Cut struct {
	// Cluster is the identity of the cluster (the uid of the namespace kube-system), where all
	// watches agree. Empty: as before.
	Cluster  string
	Watches  []WatchCut
	Routes   []RouteCut
	Memories []MemoryCut
}

// WatchCut is what changed in a watch. Reset comes first, then Deleted, then Put.
type WatchCut struct {
	ID string
	// Cluster is the identity of the cluster that the objects are of. Empty: as before.
	Cluster   string
	Fed       string
	Relisting bool
	// Reset forgets the objects and intents that were saved before.
	Reset bool
	// Put are the objects that were added or changed. Each supersedes the intent of its uid, unless
	// that is about a later state.
	Put []*event.Object
	// Deleted are the incarnations that are gone, also those that came and went since the last cut:
	// the uid says which intent is over. An object of the same key in Put is another incarnation.
	// With an empty UID no intent is touched.
	Deleted []Identity
	// BareOnly keeps only the identity of the objects in Put. Objects of the core group's secrets
	// are kept so in any case.
	BareOnly bool
}

// RouteCut is what changed in the backlog of a route, and in what its rules about time know.
// Removed comes first, then Put.
type RouteCut struct {
	Name    string // what all of it is kept under: the id of the route
	Put     []Pending
	Removed []uint64
	Rules   []RuleRecord // of one kind and key the last one counts
}

// MemoryCut is what changed in what a handler remembers. Removed comes first, then Put.
type MemoryCut struct {
	Handler string
	Put     []Value
	Removed []string
}

// Value is what a handler remembers under a key.
type Value struct {
	Key     string // not empty
	Value   []byte
	Expires time.Time // zero: never
}

// Empty reports whether there is nothing to write. A Cluster alone is not counted: see
// [DB.Cluster].
func (c *Cut) Empty() bool { return len(c.Watches) == 0 && len(c.Routes) == 0 && len(c.Memories) == 0 }
