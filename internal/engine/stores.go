package engine

import (
	"context"
	"maps"
	"slices"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/index"
	"github.com/deltarouter/deltarouter/pkg/informer"
)

// OpenStores makes a store for each distinct Spec, except for those that old has. Those get their
// new indexes by reindex.
func (s *Set) OpenStores(old *Set) {
	s.Waits = make(map[string]func(context.Context))
	s.stores = make(map[informer.Spec]*index.Store)
	s.indexes = make(map[string]map[string]index.Spec)
	shared := make(map[informer.Spec][]index.Spec) // the indexes of all sources of a watch
	for _, name := range slices.Sorted(maps.Keys(s.Plan.Config.Sources)) {
		s.indexes[name] = s.indexesOf(name)
		for _, spec := range s.Plan.Sources[name].Specs {
			shared[spec] = slices.AppendSeq(shared[spec], maps.Values(s.indexes[name]))
		}
	}
	// A watch that finds namespaces needs a store even if no source watches them.
	for spec := range shared {
		if of, ok := spec.Namespaces(); ok && shared[of] == nil {
			shared[of] = []index.Spec{}
		}
	}
	for spec, indexes := range shared {
		store := old.stores[spec]
		if store == nil {
			store = index.NewStore(indexes...)
		} else if swap := store.Reindex(indexes...); swap != nil { // the old indexes are in use until Install
			s.reindex = append(s.reindex, swap)
		}
		s.stores[spec] = store
	}
}

// Compress compresses the objects of all stores, one store after the other, see
// [index.Store.Compress].
func (s *Set) Compress(ctx context.Context) {
	for _, store := range s.stores {
		store.Compress(ctx)
	}
}

// Objects returns the number of objects of all stores.
func (s *Set) Objects() (n int) {
	for _, store := range s.stores {
		n += store.Len()
	}
	return n
}

// Bytes returns the approximate memory of all objects in bytes.
func (s *Set) Bytes() (n int64) {
	for _, store := range s.stores {
		n += store.Bytes()
	}
	return n
}

// WantedWatches returns the watches of the set. Sources with equal Specs share a watch. The watches
// that find the namespaces of others come first; they have sources only if a source watches these
// namespaces too.
func (s *Set) WantedWatches() []informer.Wanted {
	var wanted []informer.Wanted
	want := func(spec informer.Spec) *informer.Wanted {
		i := slices.IndexFunc(wanted, func(w informer.Wanted) bool { return w.Spec == spec })
		if i < 0 {
			i = len(wanted)
			wanted = append(wanted, informer.Wanted{Spec: spec, Store: s.stores[spec]})
		}
		return &wanted[i]
	}
	names := slices.Sorted(maps.Keys(s.Plan.Config.Sources))
	// First those that find namespaces: a watch looks for its finder among the earlier ones.
	for _, name := range names {
		for _, spec := range s.Plan.Sources[name].Specs {
			if of, ok := spec.Namespaces(); ok {
				want(of)
			}
		}
	}
	for _, name := range names {
		source := informer.Source{Name: name, Resync: s.Plan.Config.Sources[name].Resync}
		for _, spec := range s.Plan.Sources[name].Specs {
			w := want(spec)
			w.Sources = append(w.Sources, source)
			if spec.Cache == config.CacheAuto {
				w.Kept = s.Plan.Sources[name].Kept.Keys() // all sources of the watch keep the same
			}
		}
	}
	return wanted
}

func (s *Set) indexesOf(source string) map[string]index.Spec {
	specs := make(map[string]index.Spec)
	for name, programs := range s.Plan.Sources[source].Indexes {
		texts := make([]string, len(programs))
		for i, e := range s.Plan.Config.Sources[source].Indexes[name] {
			texts[i] = e.Text
		}
		texts = append(texts, s.Plan.Defines()) // a changed define changes its indexes
		specs[name] = index.NewSpec(texts, programs, s.env.Metrics.IndexErrors.WithLabelValues(source, name), s.env.Log, source+"."+name)
	}
	return specs
}

// storeIndexes returns the names of the indexes of a watch's sources.
func (s *Set) storeIndexes(spec informer.Spec) (names []string) {
	for source, plan := range s.Plan.Sources {
		if !slices.Contains(plan.Specs, spec) {
			continue
		}
		for _, named := range s.indexes[source] {
			names = append(names, named.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
