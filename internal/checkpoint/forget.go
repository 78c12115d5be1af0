package checkpoint

import (
	"fmt"
	"time"

	"github.com/deltarouter/deltarouter/internal/checkpoint/value"
)

// KeepBacklogs is how long a route that is no longer configured keeps its backlog, and a handler
// what it remembers: a revert brings it back.
const KeepBacklogs = 24 * time.Hour

// Configured says what the configuration has.
type Configured struct {
	Watches  []string // ids
	Routes   []string // names
	Handlers []string // names
}

// Forget removes what belongs to nothing in the configuration: watches at once, with their objects
// and intents; the backlog of a route or a handler remembers [KeepBacklogs] after the first call
// that missed it. One that is configured again in that time has it back: see [DB.LoadRoute] and
// [DB.LoadMemory].
func (db *DB) Forget(keep Configured, now time.Time) error {
	watches := nameSet(keep.Watches)
	err := db.update(TransactionForget, func(tx *writing) error {
		if err := tx.forgetWatches(watches); err != nil {
			return err
		}
		if err := tx.forgetLater(routesBucket, nameSet(keep.Routes), now); err != nil {
			return err
		}
		return tx.forgetLater(memoriesBucket, nameSet(keep.Handlers), now)
	})
	if err != nil {
		return fmt.Errorf("forgetting what is no longer configured: %w", err)
	}
	return nil
}

func nameSet(names []string) map[string]bool {
	set := make(map[string]bool, len(names))
	for _, name := range names {
		set[bucketName(name)] = true
	}
	return set
}

// names lists the buckets in a bucket.
func (s shelf) names() (names []string) {
	if s.Bucket == nil {
		return nil
	}
	_ = s.ForEachBucket(func(name []byte) error { // f never fails
		names = append(names, string(name))
		return nil
	})
	return names
}

func (tx *writing) forgetWatches(keep map[string]bool) error {
	top := tx.top(watchesBucket)
	for _, name := range top.names() {
		if keep[name] {
			continue
		}
		if err := tx.drop(top, name); err != nil {
			return err
		}
	}
	return nil
}

// What is not configured has a record "state": since when, in nanoseconds of Unix time.
func (tx *writing) forgetLater(bucket string, keep map[string]bool, now time.Time) error {
	top := tx.top(bucket)
	for _, name := range top.names() {
		s, err := tx.make(bucket, name)
		if err != nil {
			return err
		}
		gone, err := goneSince(tx.codec, s)
		switch {
		case err != nil:
		case keep[name]:
			err = tx.remove(s, []byte(stateKey))
		case gone.IsZero():
			var f fields
			f.uint(uint64(now.UnixNano())) //nolint:gosec // read back as it was
			err = tx.put(s, []byte(stateKey), f)
		case now.Sub(gone) >= KeepBacklogs:
			err = tx.drop(top, name)
			*tx.backlog(name) = weight{}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// goneSince returns since when the route or handler of a bucket is not configured; zero: it is.
func goneSince(c *value.Codec, s shelf) (time.Time, error) {
	key := []byte(stateKey)
	stored := s.Get(key)
	if stored == nil {
		return time.Time{}, nil
	}
	payload, err := c.Payload(s.seed, key, stored)
	if err != nil {
		return time.Time{}, err
	}
	r := reader{rest: payload}
	gone := time.Unix(0, int64(r.uint())) //nolint:gosec // it was one
	return gone, r.done()
}
