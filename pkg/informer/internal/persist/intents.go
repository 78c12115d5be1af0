package persist

import (
	"cmp"
	"slices"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// intent is an object in a state of which a former run may have delivered deltas, and that the
// store does not have.
type intent struct {
	*event.Object

	order int // one name may have had several of them, one after the other
}

// intents are the intents of a watch by uid. They are kept beside the store, because an older
// object may have the same name, and because the cache must not show their states.
type intents map[string]intent

// add adds an intent.
func (i *intents) add(o *event.Object) {
	if *i == nil {
		*i = make(intents)
	}
	(*i)[o.UID()] = intent{o, len(*i)}
}

// latest returns the last known state of an object of the store: that of its intent, if it is
// later.
func (i intents) latest(o *event.Object) *event.Object {
	if found, ok := i[o.UID()]; ok && found.Key() == o.Key() && Older(o, found.Object) {
		return found.Object
	}
	return o
}

// apart returns the wanted intents of whose uid the store has no object, in the order of their
// creation.
func (i intents) apart(store Cache, want func(*event.Object) bool) []*event.Object {
	var found []intent
	for _, one := range i {
		if stored := store.Get(one.Key()); stored != nil && stored.UID() == one.UID() {
			continue // it is one object, see latest
		}
		if want(one.Object) {
			found = append(found, one)
		}
	}
	slices.SortFunc(found, func(a, b intent) int { return cmp.Compare(a.order, b.order) })
	var objects []*event.Object
	for _, one := range found {
		objects = append(objects, one.Object)
	}
	return objects
}
