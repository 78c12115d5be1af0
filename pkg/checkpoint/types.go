package checkpoint

import (
	"time"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// Watch is what the state file knows of one watch.
type Watch struct {
	// Cluster is the identity of the cluster that the objects are of: what the last cut said, or else what [DB.Cluster] says.
	Cluster string
	// Fed is the resourceVersion up to which the watch had been fed into its store; empty if no cut holds it.
	Fed string
	// Relisting: the cut was made inside a relist. Objects is neither the old list nor the new one, and Fed must not be resumed from.
	Relisting bool
	Objects   []Object
	// Intents are objects whose first delivery may have begun but which no cut holds yet: their state is not known. They come in the
	// order in which they were written.
	Intents []Identity
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

// Owed is a delta that a route has not acknowledged.
type Owed struct {
	// ID is given by the route: unique in it and never used again, in the order in which the deltas came.
	ID    uint64
	Delta *event.Delta
	// Closed are the sinks that are done with the delta.
	Closed   []string
	Attempts int
	// Unlimited: the limit of the route was not asked about the delta yet.
	Unlimited bool
}

// RuleRecord is what a rule about time knows under a key. Kinds and values are the affair of package pipeline.
type RuleRecord struct {
	Kind  byte
	Key   []byte
	Value []byte // nil: nothing any more
}

// Part selects some of what a route owes, by the ids, in their order. The zero Part is all of it.
type Part struct {
	After, Before uint64 // exclusive; 0: from the beginning, to the end
	Limit         int    // at most so many; 0: no limit
}

// Debt sums up what a route owes on disk.
type Debt struct {
	N     int
	Bytes int64  // that it takes in the file, compressed
	Last  uint64 // the highest id; 0: nothing is owed
}

// Cut is what changed in one instant since the cut before: written in one transaction, or not at all. What it names it sets or
// removes, so that writing a cut twice is writing it once.
type Cut struct {
	// Cluster is the identity of the cluster (the uid of the namespace kube-system), where all watches agree. Empty: as before.
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
	// Put are the objects that were added or changed. Each supersedes the intent of its uid.
	Put []*event.Object
	// Deleted are the incarnations that are gone, also those that came and went since the last cut: the uid says which intent is
	// over. An object of the same key in Put is another incarnation. With an empty UID no intent is touched.
	Deleted []Identity
	// BareOnly keeps only the identity of the objects in Put. Objects of the core group's secrets are kept so in any case.
	BareOnly bool
}

// RouteCut is what changed in what a route owes, and in what its rules about time know. Reset comes first, then Removed, then Put.
type RouteCut struct {
	Name    string
	Reset   bool // forgets what it owed and knew before
	Put     []Owed
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

// Empty reports whether there is nothing to write. A Cluster alone is not counted: see [DB.Cluster].
func (c *Cut) Empty() bool { return len(c.Watches) == 0 && len(c.Routes) == 0 && len(c.Memories) == 0 }
