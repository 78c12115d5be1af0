package checkpoint

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/deltarouter/deltarouter/internal/checkpoint/statefile"
)

// KeepBacklogs is the time for which the backlog of a route, or the kv of a handler, is kept after
// its removal from the configuration: reverting the configuration restores it.
const KeepBacklogs = 24 * time.Hour

// Configured has the names in the configuration.
type Configured struct {
	Watches  []string // ids
	Routes   []string // names
	Prefixes []string // of further names of routes
	Handlers []string // names
}

// Forget removes state that the configuration no longer names: watches at once, with their objects
// and intents; the backlog of a route and the kv of a handler [KeepBacklogs] after the first call
// that missed them. A route or handler that is configured again within that time gets them back:
// see [DB.LoadRoute] and [DB.LoadMemory].
func (db *DB) Forget(keep Configured, now time.Time) error {
	watches := nameSet(keep.Watches)
	err := db.update(TransactionForget, func(tx *writing) error {
		if err := tx.forgetWatches(watches); err != nil {
			return err
		}
		if err := tx.forgetLater(routesBucket, keep.keepsRoute(), now); err != nil {
			return err
		}
		return tx.forgetLater(memoriesBucket, in(nameSet(keep.Handlers)), now)
	})
	if err != nil {
		return fmt.Errorf("removing the state of removed routes, sources and handlers: %w", err)
	}
	return nil
}

// keepsRoute reports for the name of a bucket whether its route is configured.
func (c *Configured) keepsRoute() func(name string) bool {
	named := nameSet(c.Routes)
	return func(name string) bool {
		return named[name] || slices.ContainsFunc(c.Prefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
	}
}

func in(set map[string]bool) func(name string) bool {
	return func(name string) bool { return set[name] }
}

func nameSet(names []string) map[string]bool {
	set := make(map[string]bool, len(names))
	for _, name := range names {
		set[bucketName(name)] = true
	}
	return set
}

// names returns the names of the buckets in a bucket.
func (s shelf) names() (names []string) {
	if s.Bucket == nil {
		return nil
	}
	_ = s.ForEachBucket(func(name []byte) error { // f never returns an error
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

// A removed route or handler has a record "state": the time of its removal, in nanoseconds of Unix
// time.
func (tx *writing) forgetLater(bucket string, keep func(name string) bool, now time.Time) error {
	top := tx.top(bucket)
	for _, name := range top.names() {
		s, err := tx.make(bucket, name)
		if err != nil {
			return err
		}
		gone, err := goneSince(tx.codec, s)
		switch {
		case err != nil:
		case keep(name):
			err = tx.remove(s, []byte(stateKey))
		case gone.IsZero():
			var f fields
			f.uint(uint64(now.UnixNano())) //nolint:gosec // read back as it was
			err = tx.put(s, []byte(stateKey), f)
		case now.Sub(gone) >= KeepBacklogs:
			err = tx.drop(top, name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// goneSince returns the time since which the route or handler of a bucket is not configured; zero:
// it is configured.
func goneSince(c *statefile.Codec, s shelf) (time.Time, error) {
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
