package checkpoint

import (
	"bytes"
	"cmp"
	"errors"
	"slices"

	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// intentShelves has the intents of a watch, their order, and the delivered states. The order is
// stored because nothing else shows which of several objects with one name came first. Versions
// before format 4 neither write nor read the order, versions before format 6 the states.
type intentShelves struct{ intents, order, states shelf }

func (tx *writing) intentShelves(name string) (s intentShelves, err error) {
	if s.intents, err = tx.make(watchesBucket, name, intentsBucket); err != nil {
		return s, err
	}
	if s.order, err = tx.make(watchesBucket, name, orderBucket); err != nil {
		return s, err
	}
	s.states, err = tx.make(watchesBucket, name, statesBucket)
	return s, err
}

// none reports whether the watch has no intents, which is usual: a cut then need not search those
// of its objects.
func (s *intentShelves) none() bool {
	first, _ := s.intents.Cursor().First()
	return first == nil
}

// newIntent is an intent that is to be written.
type newIntent struct {
	Identity

	version string        // of the state
	state   []byte        // JSON; nil: the identity only
	object  *event.Object // nil: it is not known
	number  uint64        // 0: the intent is written already, with an earlier state
}

func (i newIntent) key() []byte { return intentKey(i.Identity) }

// intentsOf returns the intents of objects: of Secrets, and without a version, the identity only.
func intentsOf(objects []*event.Object) []newIntent {
	all := make([]newIntent, len(objects))
	for i, o := range objects {
		all[i] = newIntent{Identity: Identity{o.Key(), o.UID()}, version: o.ResourceVersion(), object: o}
		if o.ResourceVersion() != "" && !secret(o) {
			all[i].state = o.JSON()
		}
	}
	return all
}

// numbered gives the intents their numbers.
func (tx *writing) numbered(s intentShelves, all []newIntent) ([]newIntent, error) {
	all, seen := slices.Clone(all), make(map[Identity]bool, len(all))
	for i := range all {
		id := all[i].Identity
		if seen[id] || s.intents.Get(intentKey(id)) != nil {
			continue // a later state of the same object
		}
		seen[id] = true
		number, err := s.order.NextSequence()
		if err != nil {
			return nil, err
		}
		tx.redo.Sequence(s.order.place, number)
		all[i].number = number
	}
	return all, nil
}

func (tx *writing) addIntent(s intentShelves, key []byte, i newIntent) error {
	if i.state != nil {
		if err := tx.put(s.states, key, i.state); err != nil {
			return err
		}
	}
	if i.number == 0 {
		return nil
	}
	if err := tx.put(s.intents, key, i.payload()); err != nil {
		return err
	}
	var f fields
	f.uint(i.number)
	return tx.put(s.order, key, f)
}

func (tx *writing) endIntent(s intentShelves, id Identity) error {
	key := intentKey(id)
	return errors.Join(tx.remove(s.intents, key), tx.remove(s.order, key), tx.remove(s.states, key))
}

// supersede ends the intent of an object in a cut, unless the intent has a later state: that state
// was delivered before a crash and has not arrived again yet.
func (tx *writing) supersede(s intentShelves, o *event.Object) error {
	id := Identity{o.Key(), o.UID()}
	key := intentKey(id)
	if value := s.states.Get(key); value != nil {
		state, err := tx.codec.Payload(s.states.seed, key, value)
		if err != nil {
			return err
		}
		if later, err := event.ParseObject(o.Resource(), string(state)); err == nil && lower(o.ResourceVersion(), later.ResourceVersion()) {
			return nil
		}
	}
	return tx.endIntent(s, id)
}

// lower reports whether a is surely a lower resourceVersion than b.
func lower(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}

// intents writes intents, in their order.
func (tx *writing) intents(watch string, intents []newIntent) error {
	if len(intents) == 0 {
		return nil
	}
	if watch == "" {
		return errors.New("a watch without an id")
	}
	s, err := tx.intentShelves(bucketName(watch))
	if err != nil {
		return err
	}
	all, err := tx.numbered(s, intents)
	if err != nil {
		return err
	}
	for key, i := range byKey(all, newIntent.key) {
		if err := tx.addIntent(s, key, i); err != nil {
			return err
		}
	}
	return nil
}

// tidy removes what an older version has left.
func tidy(tx *writing) error { return errors.Join(tx.tidyIntents(), tidyPrints(tx)) }

// tidyIntents removes the order and the states of ended intents, which an older version has left.
func (tx *writing) tidyIntents() error {
	for _, name := range tx.top(watchesBucket).names() {
		s, err := tx.intentShelves(name)
		if err != nil {
			return err
		}
		for _, beside := range []shelf{s.order, s.states} {
			var over [][]byte
			err := beside.ForEach(func(key, _ []byte) error {
				if s.intents.Get(key) == nil {
					over = append(over, bytes.Clone(key))
				}
				return nil
			})
			for _, key := range over {
				err = errors.Join(err, tx.remove(beside, key))
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// intents reads the intents of a watch, in the order in which they were written. Those without an
// order come first.
func (tx *reading) intents(name string) ([]Intent, error) {
	type numbered struct {
		Intent

		number uint64
	}
	var all []numbered
	order, states := tx.shelf(watchesBucket, name, orderBucket), tx.shelf(watchesBucket, name, statesBucket)
	err := tx.each(tx.shelf(watchesBucket, name, intentsBucket), func(key, payload []byte) error {
		id, err := parseIdentity(payload)
		if err != nil {
			return err
		}
		state, err := tx.record(states, string(key))
		if err != nil {
			return err
		}
		n := numbered{Intent: Intent{id, string(state)}}
		number, err := tx.record(order, string(key))
		if number != nil {
			r := reader{rest: number}
			n.number, err = r.uint(), r.done()
		}
		all = append(all, n)
		return err
	})
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(all, func(a, b numbered) int { return cmp.Compare(a.number, b.number) })
	var intents []Intent
	for _, n := range all {
		intents = append(intents, n.Intent)
	}
	return intents, nil
}

func intentKey(id Identity) []byte {
	return bounded(id.UID + "\x00" + id.Key.Namespace + "\x00" + id.Key.Name)
}

// payload returns the payload of an intent.
func (id Identity) payload() []byte {
	var f fields
	f.text(id.UID)
	f.text(id.Key.Namespace)
	f.text(id.Key.Name)
	return f
}

func parseIdentity(payload []byte) (Identity, error) {
	r := reader{rest: payload}
	id := Identity{UID: r.text()}
	id.Key.Namespace = r.text()
	id.Key.Name = r.text()
	return id, r.done()
}
