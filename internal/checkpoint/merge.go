package checkpoint

import (
	"cmp"
	"maps"
	"slices"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// merge returns one cut with the effects of first and then next. Neither may be used afterwards.
func merge(first, next Cut) Cut {
	if next.Cluster != "" {
		first.Cluster = next.Cluster
	}
	first.Watches = mergeEach(first.Watches, next.Watches, func(c WatchCut) string { return c.ID }, mergeWatches)
	first.Routes = mergeEach(first.Routes, next.Routes, func(c RouteCut) string { return c.Name }, mergeRoutes)
	first.Memories = mergeEach(first.Memories, next.Memories, func(c MemoryCut) string { return c.Handler }, mergeMemories)
	return first
}

// mergeEach merges elements with the same name, and appends the elements that are only in next.
func mergeEach[C any](first, next []C, name func(C) string, merge func(first, next C) C) []C {
	for _, n := range next {
		at := slices.IndexFunc(first, func(f C) bool { return name(f) == name(n) })
		if at < 0 {
			first = append(first, n)
		} else {
			first[at] = merge(first[at], n)
		}
	}
	return first
}

func mergeWatches(first, next WatchCut) WatchCut {
	next.Cluster, next.Kept = cmp.Or(next.Cluster, first.Cluster), cmp.Or(next.Kept, first.Kept)
	if next.Reset {
		return next
	}
	objects := make(map[event.Key]*event.Object, len(first.Put)+len(next.Put))
	gone := make(map[Identity]bool, len(first.Deleted)+len(next.Deleted))
	// A replaced incarnation has ended, and so has its intent, even if the collector does not list
	// it.
	end := func(key event.Key, uid string) {
		if o := objects[key]; o != nil && o.UID() != uid {
			gone[Identity{Key: key, UID: o.UID()}] = true
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
	next.Put, next.Removed = mergePuts(func(o Pending) uint64 { return o.ID }, first.Removed, first.Put, next.Removed, next.Put)
	next.Rules = mergeRules(first.Rules, next.Rules)
	return next
}

func mergeMemories(first, next MemoryCut) MemoryCut {
	next.Put, next.Removed = mergePuts(func(v Value) string { return v.Key }, first.Removed, first.Put, next.Removed, next.Put)
	return next
}

// mergePuts returns the puts and the removals of two successive cuts, each of which removes first
// and then puts.
func mergePuts[K comparable, V any](key func(V) K, removed []K, put []V, removedNext []K, putNext []V) ([]V, []K) {
	values, gone := make(map[K]V, len(put)+len(putNext)), make(map[K]bool, len(removed)+len(removedNext))
	for _, v := range put {
		values[key(v)] = v
	}
	for _, k := range removed {
		gone[k] = true
	}
	for _, k := range removedNext {
		gone[k] = true
		delete(values, k)
	}
	for _, v := range putNext {
		values[key(v)] = v
	}
	return slices.Collect(maps.Values(values)), slices.Collect(maps.Keys(gone))
}

// mergeRules keeps the last record of each kind and key.
func mergeRules(first, next []RuleRecord) []RuleRecord {
	if len(first) == 0 {
		return next
	}
	at := make(map[string]int, len(first)+len(next))
	merged := make([]RuleRecord, 0, len(first)+len(next))
	for _, records := range [][]RuleRecord{first, next} {
		for _, r := range records {
			name := string(r.Kind) + string(r.Key)
			if i, ok := at[name]; ok {
				merged[i] = r
				continue
			}
			at[name] = len(merged)
			merged = append(merged, r)
		}
	}
	return merged
}
