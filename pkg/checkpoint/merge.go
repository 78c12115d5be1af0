package checkpoint

import (
	"cmp"
	"maps"
	"slices"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// merge returns one cut that does what first and then next do. Neither may be used afterwards.
func merge(first, next Cut) Cut {
	if next.Cluster != "" {
		first.Cluster = next.Cluster
	}
	for _, w := range next.Watches {
		at := slices.IndexFunc(first.Watches, func(c WatchCut) bool { return c.ID == w.ID })
		if at < 0 {
			first.Watches = append(first.Watches, w)
		} else {
			first.Watches[at] = mergeWatches(first.Watches[at], w)
		}
	}
	for _, r := range next.Routes {
		at := slices.IndexFunc(first.Routes, func(c RouteCut) bool { return c.Name == r.Name })
		if at < 0 {
			first.Routes = append(first.Routes, r)
		} else {
			first.Routes[at] = mergeRoutes(first.Routes[at], r)
		}
	}
	for _, m := range next.Memories {
		at := slices.IndexFunc(first.Memories, func(c MemoryCut) bool { return c.Handler == m.Handler })
		if at < 0 {
			first.Memories = append(first.Memories, m)
		} else {
			first.Memories[at] = mergeMemories(first.Memories[at], m)
		}
	}
	return first
}

func mergeWatches(first, next WatchCut) WatchCut {
	next.Cluster = cmp.Or(next.Cluster, first.Cluster)
	if next.Reset {
		return next
	}
	objects := make(map[event.Key]*event.Object, len(first.Put)+len(next.Put))
	gone := make(map[Identity]bool, len(first.Deleted)+len(next.Deleted))
	// The incarnation that another one takes the place of is over, and so is its intent, if the collector says so or not.
	end := func(key event.Key, uid string) {
		if o := objects[key]; o != nil && o.UID() != uid {
			gone[Identity{key, o.UID()}] = true
		}
	}
	for _, id := range first.Deleted {
		gone[id] = true
	}
	for _, o := range first.Put {
		objects[o.Key()] = o
	}
	for _, id := range next.Deleted {
		gone[id] = true
		end(id.Key, id.UID)
		delete(objects, id.Key)
	}
	for _, o := range next.Put {
		end(o.Key(), o.UID())
		objects[o.Key()] = o
	}
	next.Reset = first.Reset
	next.BareOnly = first.BareOnly || next.BareOnly
	next.Put = slices.Collect(maps.Values(objects))
	next.Deleted = slices.Collect(maps.Keys(gone))
	return next
}

func mergeRoutes(first, next RouteCut) RouteCut {
	if next.Reset {
		return next
	}
	owed := make(map[uint64]Owed, len(first.Put)+len(next.Put))
	removed := make(map[uint64]bool, len(first.Removed)+len(next.Removed))
	for _, c := range []*RouteCut{&first, &next} {
		for _, id := range c.Removed {
			removed[id] = true
			delete(owed, id)
		}
		for _, o := range c.Put {
			owed[o.ID] = o
		}
	}
	next.Reset = first.Reset
	next.Put = slices.Collect(maps.Values(owed))
	next.Removed = slices.Collect(maps.Keys(removed))
	next.Rules = mergeRules(first.Rules, next.Rules)
	return next
}
