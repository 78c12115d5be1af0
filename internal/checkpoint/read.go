package checkpoint

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"go.etcd.io/bbolt"

	"github.com/deltarouter/deltarouter/internal/checkpoint/statefile"
	"github.com/deltarouter/deltarouter/internal/fingerprint"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// reading is a read transaction.
type reading struct {
	*bbolt.Tx

	codec  *statefile.Codec
	prints *fingerprint.Key
}

func (db *DB) view(f func(tx *reading) error) error {
	return db.file.View(func(bolt *bbolt.Tx, codec *statefile.Codec) error { return f(&reading{bolt, codec, db.prints.Load()}) })
}

// shelf is a bucket and the seed of its position.
type shelf struct {
	*bbolt.Bucket

	seed   uint32
	weight *weight // of the backlog of a route, during a write; otherwise nil
	place  string  // see frame.Recorder; empty without one
}

// shelf returns the shelf at a path, without a bucket if there is none.
func (tx *reading) shelf(path ...string) shelf {
	s := shelf{Bucket: tx.Bucket([]byte(path[0])), seed: tx.codec.Seed(0, path[0])}
	for _, name := range path[1:] {
		if s.Bucket == nil {
			return shelf{}
		}
		s = shelf{Bucket: s.Bucket.Bucket([]byte(name)), seed: tx.codec.Seed(s.seed, name)}
	}
	return s
}

// record returns the payload of a key; nil: none.
func (tx *reading) record(s shelf, key string) ([]byte, error) {
	if s.Bucket == nil {
		return nil, nil
	}
	value := s.Get([]byte(key))
	if value == nil {
		return nil, nil
	}
	return tx.codec.Payload(s.seed, []byte(key), value)
}

// each calls f with the payload of each value.
func (tx *reading) each(s shelf, f func(key, payload []byte) error) error {
	if s.Bucket == nil {
		return nil
	}
	return s.ForEach(func(key, value []byte) error {
		payload, err := tx.codec.Payload(s.seed, key, value)
		if err != nil {
			return err
		}
		return f(key, payload)
	})
}

// generation returns the generation of the journal; 0: there is none.
func (tx *reading) generation() (uint64, error) {
	payload, err := tx.record(tx.shelf(metaBucket), journalKey)
	if payload == nil || err != nil {
		return 0, err
	}
	r := reader{rest: payload}
	return r.uint(), r.done()
}

func (tx *reading) cluster() (string, error) {
	payload, err := tx.record(tx.shelf(metaBucket), clusterKey)
	return string(payload), err
}

// LoadWatch returns the saved state of a watch; nil: none. The error wraps ErrCorrupt, or is
// [ErrClosed].
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

// ReadWatch is [DB.LoadWatch], but passes the objects to take, on all cores concurrently and in no
// order. Before an error some objects may have been passed. A nil take reads no objects: see
// [DB.ReadObjects].
func (db *DB) ReadWatch(id string, take func(o Object)) (*Watch, error) {
	// No transaction takes intents from the journal to the file meanwhile.
	db.writing.Lock()
	defer db.writing.Unlock()
	var w *Watch
	err := db.view(func(tx *reading) (err error) {
		w, err = tx.watch(bucketName(id), take)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("watch %s in the state file: %w", id, err)
	}
	if logged := db.journal.intents[id]; len(logged) > 0 {
		if w == nil {
			w = &Watch{Cluster: db.Cluster()}
		}
		w.addLogged(logged)
	}
	return w, nil
}

// addLogged adds the intents of the journal, which come after those of the file.
func (w *Watch) addLogged(logged []newIntent) {
	for _, i := range logged {
		at := slices.IndexFunc(w.Intents, func(earlier Intent) bool { return earlier.Identity == i.Identity })
		if at < 0 {
			w.Intents = append(w.Intents, Intent{Identity: i.Identity, JSON: string(i.state)})
		} else if i.state != nil { // a later state of the same object
			w.Intents[at].JSON = string(i.state)
		}
	}
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
		w.Applied, w.Relisting = state.applied, state.relisting
	}
	reached, err := tx.record(s, reachedKey)
	if err != nil {
		return nil, err
	}
	w.Reached = string(reached)
	cluster, err := tx.record(s, clusterKey)
	if err != nil {
		return nil, err
	}
	if w.Cluster = string(cluster); cluster == nil {
		if w.Cluster, err = tx.cluster(); err != nil {
			return nil, err
		}
	}
	kept, err := tx.record(s, keptKey)
	if err != nil {
		return nil, err
	}
	w.Kept = string(kept)
	if take != nil {
		if err := tx.objects(tx.objectShelves(name), take); err != nil {
			return nil, err
		}
	}
	w.Intents, err = tx.intents(name)
	return w, err
}

// objects reads all objects on all cores: decompressing them takes the time, and so does take.
func (tx *reading) objects(s objectShelves, take func(o Object)) error {
	_, err := tx.someObjects(s, "", math.MaxInt, runtime.GOMAXPROCS(0), take)
	return err
}

// someObjects reads up to limit objects behind a key, and returns the last key; "": there are no
// more.
func (tx *reading) someObjects(s objectShelves, after string, limit, cores int, take func(o Object)) (last string, err error) {
	if s.objects.Bucket == nil {
		return "", nil
	}
	type saved struct{ key, value []byte }
	var all []saved
	prints := map[int][]byte{} // of few: only Secrets have any
	c := s.objects.Cursor()
	key, value := c.Seek([]byte(after))
	if after != "" && string(key) == after {
		key, value = c.Next()
	}
	for ; key != nil && len(all) < limit; key, value = c.Next() {
		if found := s.at(key, value).prints; found != nil {
			prints[len(all)] = found
		}
		all = append(all, saved{key, value})
	}
	if key != nil && len(all) > 0 {
		last = string(all[len(all)-1].key)
	}
	return last, inParallel(len(all), cores, func(i int) error {
		o, err := tx.object(s, savedObject{all[i].key, all[i].value, prints[i]})
		if err == nil {
			take(o)
		}
		return err
	})
}

func (tx *reading) object(s objectShelves, saved savedObject) (o Object, err error) {
	err = statefile.Guard(func() error { // Guard only protects its own goroutine
		payload, err := tx.codec.Payload(s.objects.seed, saved.key, saved.value)
		if err == nil {
			o, err = parseObject(payload)
		}
		if err == nil {
			err = tx.addPast(&o, s, saved)
		}
		return err
	})
	return o, err
}

// ReadObjects passes up to limit objects of a watch to take, concurrently on that many cores and in
// no order. It starts behind the key that the previous call returned; "" is the start, and as a
// result the end. Each call reads the present state. The error is as with [DB.LoadWatch].
func (db *DB) ReadObjects(id, after string, limit, cores int, take func(o Object)) (next string, err error) {
	err = db.view(func(tx *reading) (err error) {
		next, err = tx.someObjects(tx.objectShelves(bucketName(id)), after, limit, cores, take)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("watch %s in the state file: %w", id, err)
	}
	return next, nil
}

// After returns the key of an object for [DB.ReadObjects]. An empty name is that before all objects
// of the namespace.
func After(key event.Key) string { return string(objectKey(key)) }

// Key is the inverse of [After].
func Key(after string) event.Key {
	namespace, name, _ := strings.Cut(after, "\x00")
	return event.Key{Namespace: namespace, Name: name}
}

// CountObjects returns the number of saved objects of a watch. It visits each page of them.
func CountObjects(db *DB, id string) (n int, err error) {
	err = db.view(func(tx *reading) error {
		if s := tx.shelf(watchesBucket, bucketName(id), objectsBucket); s.Bucket != nil {
			n = s.Stats().KeyN
		}
		return nil
	})
	return n, err
}

// ReadObject returns one object of a watch; nil: none has that key. The error is as with
// [DB.LoadWatch].
func (db *DB) ReadObject(id string, key event.Key) (found *Object, err error) {
	err = db.view(func(tx *reading) error {
		s := tx.objectShelves(bucketName(id))
		if s.objects.Bucket == nil {
			return nil
		}
		value := s.objects.Get(objectKey(key))
		if value == nil {
			return nil
		}
		o, err := tx.object(s, s.at(objectKey(key), value))
		found = &o
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("watch %s in the state file: %w", id, err)
	}
	return found, nil
}

// inParallel calls f for the numbers below n, on that many cores, until one call fails.
func inParallel(n, cores int, f func(i int) error) error {
	const at = 64 // once
	var next atomic.Int64
	var wait sync.WaitGroup
	errs := make([]error, min(cores, n/at+1))
	for worker := range errs {
		wait.Go(func() {
			for end := 0; end < n && errs[worker] == nil; {
				end = int(next.Add(at))
				for i := end - at; i < min(end, n) && errs[worker] == nil; i++ {
					errs[worker] = f(i)
				}
			}
			if errs[worker] != nil {
				next.Store(int64(n)) // stops the others
			}
		})
	}
	wait.Wait()
	return errors.Join(errs...)
}
