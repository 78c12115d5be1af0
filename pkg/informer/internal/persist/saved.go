package persist

import (
	"iter"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// NeverExisted is the applied resourceVersion of a watch whose resource was confirmed not to exist
// before its first list. The API server never uses 0 for a state.
const NeverExisted = "0"

// Cache stores the objects of a watch. Put and Delete are called under the watch's cut lock, by one
// goroutine at a time; Get may be called concurrently.
type Cache interface {
	Get(key event.Key) *event.Object // nil: none
	Put(o *event.Object)             // adds or replaces
	Delete(key event.Key)
	// All returns all objects, in any order, as of the start of the iteration.
	All() iter.Seq[*event.Object]
}

// Changes are the changes of a watch between two calls of Dirty, and its position at the second
// call. Together with the state that was saved before they give a state that Watch.Restore can
// resume from. Intents for which the Gate was called before the second call are written before the
// changes or together with them; intents of later calls are written after them.
type Changes struct {
	ID      string // of the watch, see Spec.ID
	Cluster string // of the objects, see Client.Identity; empty: unknown
	Changed bool   // any of the following
	// the resourceVersion up to which everything is applied; empty: no list was ever complete
	Applied string
	// Reached is the latest resourceVersion of which something is applied: Applied or a later one,
	// of whose events some may be missing.
	Reached   string
	Relisting bool // a list is partly applied
	// Kept is the text of the fields that all objects have; empty: the configuration of the watch
	// alone decides about them.
	Kept string
	// Put has the latest state of every object that was added or updated, as the store keeps it;
	// Deleted has the removed keys. No key is in both.
	Put     []*event.Object
	Deleted []event.Key
	// Settled has the objects for which the Gate was called and which are gone from the watch
	// again: the routes have their deltas, and the intents can be deleted. An intent whose uid is
	// in Put is superseded in the same way, unless it has a later state: that state was delivered
	// before a crash, and will arrive again. If the name of a settled object is in use, the object
	// that has it is in Put.
	Settled []Incarnation
}

// Incarnation identifies one of the objects that have had the same name.
type Incarnation struct {
	Key event.Key
	UID string
}

// Restored is the saved state of a watch: the sum of its [Changes].
type Restored struct {
	Cluster   string // of the objects, see Client.Identity; empty: unknown
	Applied   string
	Reached   string // see Changes; empty: that of Applied
	Relisting bool
	Kept      string // see Changes
	// Lossy: the last cuts and intents of the former run may be missing, as in a fleet whose leader
	// has died. So each object that is new until the watch has caught up may have been delivered.
	Lossy bool
	// Listed: a list was complete before, so new objects of the next one are added, not initial. A
	// non-empty Applied implies it.
	Listed bool
	// Objects are the saved objects, made with Watch.Resource. Identities among them that the watch
	// keeps in full (Secrets) make it list.
	Objects []*event.Object
	// Intents have the objects for which the Gate was called and which no cut has, in the states
	// that may have been delivered, or as identities if the state is not known. Intents of one name
	// are in the order of their creation.
	Intents []*event.Object
	// Later has objects that are restored while the watch runs already; nil: none. None of them is
	// an identity only.
	Later Saved
}

// Saved reads the saved objects of a watch that are not restored yet, see [Restored.Later].
type Saved interface {
	// Object returns the saved object of a key; nil: none.
	Object(key event.Key) (*event.Object, error)
	// Next calls take for some more objects, possibly from several goroutines, and returns false
	// when there are no more.
	Next(take func(*event.Object)) (more bool, err error)
}
