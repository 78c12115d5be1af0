package owner

import (
	"context"
	"log/slog"
	"time"
)

// cleaner removes the keys of closed generations that no worker removes any more: those that were
// freed before the generation was closed, and those of workers that have ended. A worker removes the
// key that it holds itself, see [keeper.free].
type cleaner struct {
	o *Owner
	// closed has, by route, the number before which all generations were closed when no key was left.
	closed map[string]uint64
	// still has the revisions of keys that are held, and when they were seen first.
	still map[string]sighting
}

type sighting struct {
	revision uint64
	since    time.Time
}

// run looks at the routes until ctx ends.
func (c *cleaner) run(ctx context.Context) {
	tick := time.NewTicker(c.o.cfg.TTL / 2)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		for route := range c.o.cfg.Routes {
			if before := c.o.closedBefore(route); before > c.closed[route] && c.clean(ctx, route, before) {
				c.closed[route] = before
			}
		}
	}
}

// closedBefore returns the number of the first generation of a route that may have messages; 0: it is
// not known.
func (o *Owner) closedBefore(route string) uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	r, announced := o.records[route]
	if !announced {
		return 0
	}
	return max(o.opened[route], r.Generations[0].Number)
}

// clean removes the keys of a route's generations before a number. It reports whether none is left.
func (c *cleaner) clean(ctx context.Context, route string, before uint64) (done bool) {
	ctx, cancel := context.WithTimeout(ctx, c.o.cfg.TTL)
	defer cancel()
	keys, err := c.o.cfg.Own.ListKeysFiltered(ctx, route+".*.*")
	if err != nil {
		return false
	}
	defer func() { _ = keys.Stop() }()
	done = true
	for key := range keys.Keys() {
		if p, ok := parsePartition(key); ok && p.Generation < before && !c.remove(ctx, key) {
			done = false
		}
	}
	return done && ctx.Err() == nil
}

// remove removes the key of a partition without messages, unless a worker holds it: then the key gets
// another revision in a part of the TTL.
func (c *cleaner) remove(ctx context.Context, key string) (removed bool) {
	data, revision, err := c.o.store.Get(ctx, key)
	if err != nil {
		return false
	}
	v, err := decode(data)
	if s := c.still[key]; err == nil && revision > 0 && !v.free() {
		if s.revision != revision {
			c.still[key] = sighting{revision, time.Now()}
			return false
		}
		if time.Since(s.since) <= c.o.cfg.TTL {
			return false
		}
	}
	delete(c.still, key)
	if revision == 0 {
		return true
	}
	if err := c.o.store.Delete(ctx, key, revision); err != nil {
		c.o.cfg.Log.Debug("the key of a partition without messages cannot be removed", slog.String("key", key), slog.Any("err", err))
		return false
	}
	return true
}
