package checkpoint

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// objects reads all objects on all cores: what takes time is to decompress them, and what is done with them while they are at hand.
func (tx *reading) objects(s shelf, take func(o Object)) error {
	_, err := tx.someObjects(s, "", math.MaxInt, runtime.GOMAXPROCS(0), take)
	return err
}

// someObjects reads up to limit objects behind a key, and returns the last key; "": there are no more.
func (tx *reading) someObjects(s shelf, after string, limit, cores int, take func(o Object)) (last string, err error) {
	if s.Bucket == nil {
		return "", nil
	}
	type saved struct{ key, value []byte }
	var all []saved
	c := s.Cursor()
	key, value := c.Seek([]byte(after))
	if after != "" && string(key) == after {
		key, value = c.Next()
	}
	for ; key != nil && len(all) < limit; key, value = c.Next() {
		all = append(all, saved{key, value})
	}
	if key != nil && len(all) > 0 {
		last = string(all[len(all)-1].key)
	}
	return last, inParallel(len(all), cores, func(i int) error {
		o, err := tx.object(s, all[i].key, all[i].value)
		if err == nil {
			take(o)
		}
		return err
	})
}

func (tx *reading) object(s shelf, key, value []byte) (o Object, err error) {
	err = guard(func() error { // which only helps its own goroutine
		payload, err := tx.codec.payload(s.seed, key, value)
		if err == nil {
			o, err = parseObject(payload)
		}
		return err
	})
	return o, err
}

// ReadObjects hands up to limit objects of a watch to take, on so many cores at the same time and in no order, beginning behind a place
// that the call before has returned; "" is the beginning, and as a result the end. Each call reads what is there by then. The error is
// as with [DB.LoadWatch].
func (db *DB) ReadObjects(id, after string, limit, cores int, take func(o Object)) (next string, err error) {
	err = db.view(func(tx *reading) (err error) {
		next, err = tx.someObjects(tx.shelf(watchesBucket, bucketName(id), objectsBucket), after, limit, cores, take)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("watch %s in the state file: %w", id, err)
	}
	return next, nil
}

// ReadObject returns one object of a watch; nil: there is none under that key. The error is as with [DB.LoadWatch].
func (db *DB) ReadObject(id string, key event.Key) (found *Object, err error) {
	err = db.view(func(tx *reading) error {
		s := tx.shelf(watchesBucket, bucketName(id), objectsBucket)
		if s.Bucket == nil {
			return nil
		}
		value := s.Get(objectKey(key))
		if value == nil {
			return nil
		}
		o, err := tx.object(s, objectKey(key), value)
		found = &o
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("watch %s in the state file: %w", id, err)
	}
	return found, nil
}

// inParallel calls f for the numbers below n, on so many cores, until one fails.
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
				next.Store(int64(n)) // the others need not go on
			}
		})
	}
	wait.Wait()
	return errors.Join(errs...)
}
