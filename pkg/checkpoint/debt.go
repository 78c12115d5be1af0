package checkpoint

import (
	"encoding/binary"
	"fmt"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// weight is how many values there are, and what they take in the file.
type weight struct {
	n     int
	bytes int64
}

// elementBytes is what a key and its place on the page take beside a value.
const elementBytes = 8 + elementSize

func (w *weight) add(value []byte)    { w.n++; w.bytes += int64(len(value)) + elementBytes }
func (w *weight) remove(value []byte) { w.n--; w.bytes -= int64(len(value)) + elementBytes }

// Whole reports whether a delta comes back from the disk as it is: of a Secret the disk has only the identity.
func Whole(d *event.Delta) bool {
	return (d.Old == nil || !secret(d.Old)) && (d.New == nil || !secret(d.New))
}

// LoadRoute returns what a route owes, or a part of it, in the order of the ids. resolve gives the resource of a source; nil: the
// source is not configured any more, and the delta gets the resource that was saved with it.
func (db *DB) LoadRoute(name string, part Part, resolve func(source string) *event.Resource) ([]Owed, error) {
	saved := make(map[event.Resource]*event.Resource)
	resource := func(source string, r event.Resource) *event.Resource {
		if known := resolve(source); known != nil {
			return known
		}
		if saved[r] == nil {
			saved[r] = &r
		}
		return saved[r]
	}
	var all []Owed
	err := db.view(func(tx *reading) (err error) {
		all, err = tx.owed(tx.shelf(routesBucket, bucketName(name), owedBucket), part, resource)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("route %q in the state file: %w", name, err)
	}
	return all, nil
}

func (tx *reading) owed(s shelf, part Part, resource func(string, event.Resource) *event.Resource) (all []Owed, err error) {
	if s.Bucket == nil {
		return nil, nil
	}
	cursor := s.Cursor()
	for key, value := cursor.Seek(owedKey(part.After)); key != nil; key, value = cursor.Next() {
		if len(key) != 8 {
			return nil, corruptf("a delta's number has %d bytes", len(key))
		}
		id := binary.BigEndian.Uint64(key)
		if part.After > 0 && id == part.After {
			continue
		}
		if part.Before > 0 && id >= part.Before || part.Limit > 0 && len(all) == part.Limit {
			break
		}
		payload, err := tx.codec.payload(s.seed, key, value)
		if err != nil {
			return nil, err
		}
		owed, err := parseOwed(id, payload, resource)
		if err != nil {
			return nil, err
		}
		all = append(all, owed)
	}
	return all, nil
}

// Debt returns what a route owes on disk, as of the last transaction. It reads one entry at most.
func (db *DB) Debt(name string) (d Debt, err error) {
	err = db.view(func(tx *reading) error {
		w := db.debts[bucketName(name)]
		d.N, d.Bytes = w.n, w.bytes
		if s := tx.shelf(routesBucket, bucketName(name), owedBucket); s.Bucket != nil {
			if key, _ := s.Cursor().Last(); len(key) == 8 {
				d.Last = binary.BigEndian.Uint64(key)
			}
		}
		return nil
	})
	return d, err
}

// DebtBytes returns what a route owes takes on disk, and what all routes owe takes, as of the last transaction.
func (db *DB) DebtBytes(name string) (route, all int64) {
	db.mu.RLock()
	defer db.mu.RUnlock()
	for _, w := range db.debts {
		all += w.bytes
	}
	return db.debts[bucketName(name)].bytes, all
}

// debts weighs what each route owes.
func (tx *reading) debts() map[string]weight {
	debts := make(map[string]weight)
	routes := tx.shelf(routesBucket)
	for _, name := range routes.names() {
		s := tx.shelf(routesBucket, name, owedBucket)
		if s.Bucket == nil {
			continue
		}
		var w weight
		_ = s.ForEach(func(_, value []byte) error { w.add(value); return nil }) // f never fails
		debts[name] = w
	}
	return debts
}

// fullPages is how far the pages of what a route owes are filled: the ids ascend, so that nothing comes in between later.
const fullPages = 0.9

// debtor returns the shelf of what a route owes, by the name of its bucket.
func (tx *writing) debtor(name string) (shelf, error) {
	s, err := tx.make(routesBucket, name, owedBucket)
	if err == nil {
		s.FillPercent, s.weight = fullPages, tx.debt(name)
	}
	return s, err
}

// debt returns the weight of what a route owes, to be changed.
func (tx *writing) debt(name string) *weight {
	if tx.debts[name] == nil {
		w := tx.before[name]
		tx.debts[name] = &w
	}
	return tx.debts[name]
}
