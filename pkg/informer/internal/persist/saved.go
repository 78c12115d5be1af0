package persist

import (
	"iter"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// NeverExisted is the applied resourceVersion of a watch whose resource was confirmed not to exist
// before it was ever listed. The API server uses 0 for no state.
const NeverExisted = "0"

// Cache is where a watch keeps its objects. Put and Delete are called under the watch's cut lock,
// by one goroutine at a time; Get may be called at the same time by others.
type Cache interface {
	Get(key event.Key) *event.Object // nil: there is none
	Put(o *event.Object)             // adds or replaces
	Delete(key event.Key)
	// All returns everything in it, in any order, as it was when the iteration began.
	All() iter.Seq[*event.Object]
}

// Changes is what changed in a watch between two calls of Dirty, and how far it had got at the
// second. Applied to what was saved before, it gives a state that Watch.Restore can resume from.
// Intents for which the Gate was asked before the second call have to be written before the changes
// or with them, and those for which it is asked later after them.
type Changes struct {
	ID      string // of the watch, see Spec.ID
	Cluster string // that the objects are of, see Client.Identity; empty: not known
	Changed bool   // anything did
	// the resourceVersion up to which everything is applied; empty: no list was ever complete
	Applied   string
	Relisting bool // some of a list is applied and some is not
	// Put has the latest state of every object that was added or updated, as the store keeps it;
	// Deleted the keys that are gone. No key is in both.
	Put     []*event.Object
	Deleted []event.Key
	// Settled has the objects for which the Gate was asked and which are gone from the watch again:
	// their deltas are with the routes, and the intents can be forgotten. An intent whose uid is in
	// Put has been superseded in the same way, unless its state is a later one: that was delivered
	// before a crash, and will come again. Where the name of one of them is in use, the object that
	// has it is in Put.
	Settled []Incarnation
}

// Incarnation is one object of those that have had a name.
type Incarnation struct {
	Key event.Key
	UID string
}

// Restored is what was saved of a watch: the sum of its [Changes].
type Restored struct {
	Cluster   string // that the objects are of, see Client.Identity; empty: not known
	Applied   string
	Relisting bool
	// Listed: a list was complete before, so what the next one brings is new rather than initial.
	// An Applied that is not empty says so too.
	Listed bool
	// Objects are the states, made with Watch.Resource. Where the watch keeps more of its objects
	// than an identity, but some of these are no more than that (Secrets), they have to be listed.
	Objects []*event.Object
	// Intents are what the Gate was asked for and no cut has, in the states that may have been
	// delivered, or identities where no more is known; those of one name come in the order of their
	// gates.
	Intents []*event.Object
	// Later has states that are restored while the watch runs already; nil: there are none. None of
	// them is an identity alone.
	Later Saved
}

// Saved is where a watch finds what was saved of its objects and not restored yet, see
// [Restored.Later].
type Saved interface {
	// Object returns what was saved under a key; nil: nothing was.
	Object(key event.Key) (*event.Object, error)
	// Next hands over some more objects, perhaps on several cores at the same time, and returns
	// false when there are no more.
	Next(take func(*event.Object)) (more bool, err error)
}
