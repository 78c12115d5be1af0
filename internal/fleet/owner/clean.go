package owner

import (
	"context"
	"log/slog"
	"time"
)

// cleaner removes the keys of closed generations that no worker removes any more: those that were
// freed before the generation was closed, and those of workers that have ended. A worker removes
// the key that it holds itself, see [keeper.free].
type cleaner struct {
	o *Owner
	// closed has, by route, the number before which all generations are closed, of the last pass.
	closed map[string]uint64
	// still has the revisions of keys that are held, and when they were seen first.
	still map[string]sighting
}

type sighting struct {
	revision uint64
	since    time.Time
}

// rareClean is the longest pause between two passes, in TTLs.
const rareClean = 32

// run looks at the keys until ctx ends: often while there are some to remove, and then rarely. A
// list of keys may lack one that is renewed at the same time, so no pass is the last one.
func (c *cleaner) run(ctx context.Context) {
	for pause := c.o.cfg.TTL / 2; ; {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
		changed := false
		for route := range c.o.cfg.Routes {
			before := c.o.closedBefore(route)
			changed = changed || before != c.closed[route]
			c.closed[route] = before
		}
		if clean := c.clean(ctx); clean && !changed {
			pause = min(2*pause, rareClean*c.o.cfg.TTL)
		} else {
			pause = c.o.cfg.TTL / 2
		}
	}
}

// closedBefore returns the number of the first generation of a route that may have messages; 0: it
// is not known.
func (o *Owner) closedBefore(route string) uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	r, announced := o.records[route]
	if !announced {
		return 0
	}
	return max(o.opened[route], r.Generations[0].Number)
}

// clean removes keys of closed generations. It reports whether it found none.
func (c *cleaner) clean(ctx context.Context) (none bool) {
	ctx, cancel := context.WithTimeout(ctx, c.o.cfg.TTL)
	defer cancel()
	keys, err := c.o.cfg.Own.ListKeysFiltered(ctx, "*.*.*")
	if err != nil {
		return false
	}
	defer func() { _ = keys.Stop() }()
	none = true
	for key := range keys.Keys() {
		if p, ok := parsePartition(key); ok && p.Generation < c.closed[p.Route] {
			none = false
			c.remove(ctx, key)
		}
	}
	return none
}

// remove removes the key of a partition without messages, unless a worker holds it: then the key
// gets another revision in a part of the TTL.
func (c *cleaner) remove(ctx context.Context, key string) {
	data, revision, err := c.o.store.Get(ctx, key)
	if err != nil || revision == 0 {
		return
	}
	v, err := decode(data)
	if s := c.still[key]; err == nil && !v.free() {
		if s.revision != revision {
			c.still[key] = sighting{revision, time.Now()}
			return
		}
		if time.Since(s.since) <= c.o.cfg.TTL {
			return
		}
	}
	delete(c.still, key)
	if err := c.o.store.Delete(ctx, key, revision); err != nil {
		c.o.cfg.Log.Debug("the key of a partition without messages cannot be removed", slog.String("key", key), slog.Any("err", err))
	}
}
