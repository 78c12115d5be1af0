package checkpoint

import (
	"cmp"
	"errors"
	"slices"
)

// intentShelves is where the intents of a watch are, and beside it the order in which they came: of the objects that had one name
// nothing else says which was first. Versions before format 4 neither write the order nor read it.
type intentShelves struct{ intents, order shelf }

func (tx *writing) intentShelves(name string) (s intentShelves, err error) {
	if s.intents, err = tx.make(watchesBucket, name, intentsBucket); err == nil {
		s.order, err = tx.make(watchesBucket, name, orderBucket)
	}
	return s, err
}

func (tx *writing) addIntent(s intentShelves, id Identity) error {
	key := intentKey(id)
	if err := tx.put(s.intents, key, id.payload()); err != nil {
		return err
	}
	number, err := s.order.NextSequence()
	if err != nil {
		return err
	}
	var f fields
	f.uint(number)
	return tx.put(s.order, key, f)
}

func (tx *writing) endIntent(s intentShelves, id Identity) error {
	key := intentKey(id)
	return errors.Join(tx.remove(s.intents, key), tx.remove(s.order, key))
}

// intents writes intents, in their order, but for those that are over.
func (tx *writing) intents(watch string, ids []Identity, over map[Identity]bool) error {
	if watch == "" {
		return errors.New("a watch without an id")
	}
	s, err := tx.intentShelves(bucketName(watch))
	if err != nil {
		return err
	}
	for _, id := range ids {
		if over[id] {
			continue
		}
		if err := tx.addIntent(s, id); err != nil {
			return err
		}
	}
	return nil
}

// intents reads the intents of a watch, in the order in which they were written. Those of which it is not known come first.
func (tx *reading) intents(name string) ([]Identity, error) {
	type numbered struct {
		Identity

		number uint64
	}
	var all []numbered
	order := tx.shelf(watchesBucket, name, orderBucket)
	err := tx.each(tx.shelf(watchesBucket, name, intentsBucket), func(key, payload []byte) error {
		id, err := parseIdentity(payload)
		if err != nil {
			return err
		}
		number, err := tx.record(order, string(key))
		if err != nil {
			return err
		}
		n := numbered{Identity: id}
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
	var ids []Identity
	for _, n := range all {
		ids = append(ids, n.Identity)
	}
	return ids, nil
}

func intentKey(id Identity) []byte {
	return bounded(id.UID + "\x00" + id.Key.Namespace + "\x00" + id.Key.Name)
}

// payload of an intent.
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
