package checkpoint

import (
	"fmt"
	"sync"

	"go.etcd.io/bbolt"
)

// reading is a read transaction.
type reading struct {
	*bbolt.Tx

	codec *codec
}

func (db *DB) view(f func(tx *reading) error) error {
	db.mu.RLock()
	defer db.mu.RUnlock()
	if db.bolt == nil {
		return ErrClosed
	}
	if db.broken != nil {
		return db.broken
	}
	return full(guard(func() error {
		return db.bolt.View(func(tx *bbolt.Tx) error { return f(&reading{tx, db.codec}) })
	}))
}

// shelf is a bucket and the seed of its place.
type shelf struct {
	*bbolt.Bucket

	seed   uint32
	weight *weight // of what a route owes, when it is being written; else nil
}

// shelf returns a shelf without a bucket if there is none at the path.
func (tx *reading) shelf(path ...string) shelf {
	s := shelf{Bucket: tx.Bucket([]byte(path[0])), seed: tx.codec.seed(0, path[0])}
	for _, name := range path[1:] {
		if s.Bucket == nil {
			return shelf{}
		}
		s = shelf{Bucket: s.Bucket.Bucket([]byte(name)), seed: tx.codec.seed(s.seed, name)}
	}
	return s
}

// record returns the payload under a key; nil: there is none.
func (tx *reading) record(s shelf, key string) ([]byte, error) {
	if s.Bucket == nil {
		return nil, nil
	}
	value := s.Get([]byte(key))
	if value == nil {
		return nil, nil
	}
	return tx.codec.payload(s.seed, []byte(key), value)
}

// each calls f with the payload of each value.
func (tx *reading) each(s shelf, f func(key, payload []byte) error) error {
	if s.Bucket == nil {
		return nil
	}
	return s.ForEach(func(key, value []byte) error {
		payload, err := tx.codec.payload(s.seed, key, value)
		if err != nil {
			return err
		}
		return f(key, payload)
	})
}

func (tx *reading) cluster() (string, error) {
	payload, err := tx.record(tx.shelf(metaBucket), clusterKey)
	return string(payload), err
}

// LoadWatch returns what is known of a watch; nil: nothing was ever saved. The error wraps ErrCorrupt, or is [ErrClosed].
func (db *DB) LoadWatch(id string) (*Watch, error) {
	var mu sync.Mutex
	var objects []Object
	w, err := db.ReadWatch(id, func(o Object) {
		mu.Lock()
		defer mu.Unlock()
		objects = append(objects, o)
	})
	if w != nil {
		w.Objects = objects
	}
	return w, err
}

// ReadWatch is [DB.LoadWatch], but hands the objects to take, on all cores at the same time and in no order. When it returns an error
// some may have been handed over. A nil take reads no objects: see [DB.ReadObjects].
func (db *DB) ReadWatch(id string, take func(o Object)) (*Watch, error) {
	var w *Watch
	err := db.view(func(tx *reading) (err error) {
		w, err = tx.watch(bucketName(id), take)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("watch %s in the state file: %w", id, err)
	}
	return w, nil
}

func (tx *reading) watch(name string, take func(o Object)) (*Watch, error) {
	s := tx.shelf(watchesBucket, name)
	if s.Bucket == nil {
		return nil, nil //nolint:nilnil // as promised
	}
	w := &Watch{}
	if payload, err := tx.record(s, stateKey); err != nil {
		return nil, err
	} else if payload != nil {
		state, err := parseWatchState(payload)
		if err != nil {
			return nil, err
		}
		w.Fed, w.Relisting = state.fed, state.relisting
	}
	cluster, err := tx.record(s, clusterKey)
	if err != nil {
		return nil, err
	}
	if w.Cluster = string(cluster); cluster == nil {
		if w.Cluster, err = tx.cluster(); err != nil {
			return nil, err
		}
	}
	if take != nil {
		if err := tx.objects(tx.shelf(watchesBucket, name, objectsBucket), take); err != nil {
			return nil, err
		}
	}
	w.Intents, err = tx.intents(name)
	return w, err
}
