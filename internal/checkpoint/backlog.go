package checkpoint

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/deltarouter/deltarouter/internal/checkpoint/statefile"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// weight is the number of values and their size in the file.
type weight struct {
	n     int
	bytes int64
}

// elementBytes is the space of a key and its place on the page, beside the value.
const elementBytes = 8 + statefile.ElementSize

func (w *weight) add(value []byte)    { w.n++; w.bytes += int64(len(value)) + elementBytes }
func (w *weight) remove(value []byte) { w.n--; w.bytes -= int64(len(value)) + elementBytes }

// Whole reports whether the disk has the complete delta: of a Secret it has only the identity.
func Whole(d *event.Delta) bool {
	return (d.Old == nil || !secret(d.Old)) && (d.New == nil || !secret(d.New))
}

// LoadRoute returns the backlog of a route, or a part of it, in the order of the ids. Secrets in it
// are bare, see [event.Object.AsBare]. resolve returns the resource of a source; nil: the source is
// no longer configured, and the delta gets the resource that was saved with it.
func (db *DB) LoadRoute(name string, part Part, resolve func(source string) *event.Resource) ([]Pending, error) {
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
	var all []Pending
	err := db.view(func(tx *reading) (err error) {
		all, err = tx.pending(tx.shelf(routesBucket, bucketName(name), pendingBucket), part, resource)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("route %q in the state file: %w", name, err)
	}
	return all, nil
}

func (tx *reading) pending(s shelf, part Part, resource func(string, event.Resource) *event.Resource) (all []Pending, err error) {
	if s.Bucket == nil {
		return nil, nil
	}
	cursor, read := s.Cursor(), int64(0)
	for key, stored := cursor.Seek(pendingKey(part.After)); key != nil; key, stored = cursor.Next() {
		if len(key) != 8 {
			return nil, statefile.Corruptf("a delta's number has %d bytes", len(key))
		}
		id := binary.BigEndian.Uint64(key)
		if part.After > 0 && id == part.After {
			continue
		}
		if part.Before > 0 && id >= part.Before || part.Limit > 0 && len(all) == part.Limit || part.Bytes > 0 && read >= part.Bytes {
			break
		}
		payload, err := tx.codec.Payload(s.seed, key, stored)
		if err != nil {
			return nil, err
		}
		pending, err := parsePending(id, payload, resource)
		if err == nil && !Whole(pending.Delta) {
			err = pending.makeBare(tx.prints)
		}
		if err != nil {
			return nil, err
		}
		all, read = append(all, pending), read+int64(len(payload))
	}
	return all, nil
}

// Backlog sums up the backlog of a route on disk, as of the last transaction. It reads one entry at
// most.
func (db *DB) Backlog(name string) (d Backlog, err error) {
	err = db.view(func(tx *reading) error {
		db.mu.RLock()
		w := db.backlogs[bucketName(name)]
		db.mu.RUnlock()
		d.N, d.Bytes = w.n, w.bytes
		if s := tx.shelf(routesBucket, bucketName(name), pendingBucket); s.Bucket != nil {
			if key, _ := s.Cursor().Last(); len(key) == 8 {
				d.Last = binary.BigEndian.Uint64(key)
			}
		}
		return nil
	})
	return d, err
}

// BacklogBytes returns the bytes of the backlog of a route on disk, of the backlogs of all routes
// of its [Owner], and of those of all routes, as of the last transaction.
func (db *DB) BacklogBytes(name string) (route, owned, all int64) {
	db.mu.RLock()
	defer db.mu.RUnlock()
	owner := Owner(name)
	for other, w := range db.backlogs {
		all += w.bytes
		if owner != "" && Owner(other) == owner {
			owned += w.bytes
		}
	}
	return db.backlogs[bucketName(name)].bytes, owned, all
}

// backlogs weighs the backlog of each route.
func (tx *reading) backlogs() map[string]weight {
	backlogs := make(map[string]weight)
	routes := tx.shelf(routesBucket)
	for _, name := range routes.names() {
		s := tx.shelf(routesBucket, name, pendingBucket)
		if s.Bucket == nil {
			continue
		}
		var w weight
		// f never returns an error
		_ = s.ForEach(func(_, value []byte) error { w.add(value); return nil })
		backlogs[name] = w
	}
	return backlogs
}

// fullPages is the fill ratio of the pages of a route's backlog: the ids ascend, so that no entry
// is inserted later.
const fullPages = 0.9

// backlogShelf returns the shelf of the backlog of a route, by the name of its bucket.
func (tx *writing) backlogShelf(name string) (shelf, error) {
	s, err := tx.make(routesBucket, name, pendingBucket)
	if err == nil {
		s.FillPercent, s.weight = fullPages, tx.backlog(name)
	}
	return s, err
}

// backlog returns the weight of the backlog of a route, for modification.
func (tx *writing) backlog(name string) *weight {
	if tx.backlogs[name] == nil {
		w := tx.before[name]
		tx.backlogs[name] = &w
	}
	return tx.backlogs[name]
}

// KnowsRoute reports whether a cut has named the route and [DB.Forget] has not removed it since. An
// unknown route is new: no cut has any of its deltas. The error is [ErrClosed] or a read error.
func (db *DB) KnowsRoute(name string) (known bool, err error) {
	err = db.view(func(tx *reading) error {
		known = tx.shelf(routesBucket, bucketName(name)).Bucket != nil
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("route %q in the state file: %w", name, err)
	}
	return known, nil
}

// Gone reports whether a known route was not configured at the last call of [DB.Forget]: it has
// received no deltas since.
func (db *DB) Gone(name string) (gone bool, err error) {
	err = db.view(func(tx *reading) error {
		s := tx.shelf(routesBucket, bucketName(name))
		if s.Bucket == nil {
			return nil
		}
		since, err := goneSince(tx.codec, s)
		gone = !since.IsZero()
		return err
	})
	if err != nil {
		return false, fmt.Errorf("route %q in the state file: %w", name, err)
	}
	return gone, nil
}

// ExpireBacklogs removes the routes that have not been configured for [KeepBacklogs]. It is called
// before a route returns, because [DB.Forget] keeps every configured route. It writes only if there
// is such a route.
func (db *DB) ExpireBacklogs(now time.Time) error {
	var expired []string
	err := db.view(func(tx *reading) error {
		top := tx.shelf(routesBucket)
		for _, name := range top.names() {
			gone, err := goneSince(tx.codec, tx.shelf(routesBucket, name))
			if err != nil {
				return err
			}
			if !gone.IsZero() && now.Sub(gone) >= KeepBacklogs {
				expired = append(expired, name)
			}
		}
		return nil
	})
	if err == nil && len(expired) > 0 {
		err = db.update(TransactionForget, func(tx *writing) error {
			for _, name := range expired {
				if err := tx.drop(tx.top(routesBucket), name); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err != nil {
		return fmt.Errorf("removing the expired backlogs of removed routes: %w", err)
	}
	return nil
}
