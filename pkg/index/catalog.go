package index

import (
	"cmp"
	"slices"
	"strings"

	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// Catalog answers look-ups over all sources for expressions and handlers. [Catalog.Add] must be
// called before the first look-up. Look-ups are safe for concurrent use.
type Catalog struct {
	sources map[string]source
	scope   *config.Scope // the objects that look-ups see; nil: all
}

// source is the union of the stores of its watches.
type source struct {
	stores  []*view
	indexes map[string]string // the name of the index in the configuration → Spec.Name
}

var _ cel.Cache = (*Catalog)(nil)

// NewCatalog returns a catalog without sources.
func NewCatalog() *Catalog { return NewScopedCatalog(nil) }

// NewScopedCatalog returns a catalog without sources whose look-ups see only the objects of a
// scope. Its look-ups cost no more than the number of these objects.
func NewScopedCatalog(scope *config.Scope) *Catalog {
	return &Catalog{sources: make(map[string]source), scope: scope}
}

// Add declares a source with its stores and the names of its indexes. The catalog uses the present
// indexes of each store. After [Store.Reindex] it shows the objects at the time of the exchange.
func (c *Catalog) Add(name string, stores []*Store, indexes map[string]Spec) {
	names := make(map[string]string, len(indexes)+len(builtins))
	for builtin := range builtins {
		names[builtin] = builtin
	}
	for index, spec := range indexes {
		names[index] = spec.Name
	}
	views := make([]*view, len(stores))
	for i, s := range stores {
		views[i] = s.live.Load()
	}
	c.sources[name] = source{stores: views, indexes: names}
}

// Lookup returns the objects of the source that the index has under value, or all objects if index
// is empty. An unknown source or index has none. The objects are sorted by namespace and name, so
// that results computed from them are deterministic.
func (c *Catalog) Lookup(source, index, value string) []*event.Object {
	src := c.sources[source]
	found := make([]*event.Object, 0, c.Count(source, index, value))
	for store := range src.stores {
		found = c.Collect(found, source, store, index, value)
	}
	slices.SortFunc(found, func(a, b *event.Object) int {
		return cmp.Or(strings.Compare(a.Key().Namespace, b.Key().Namespace), strings.Compare(a.Key().Name, b.Key().Name))
	})
	return found
}

// Collect appends to found the objects that [Catalog.Lookup] would find in one store of the source,
// unsorted. store is its index in the stores of [Catalog.Add].
func (c *Catalog) Collect(found []*event.Object, source string, store int, index, value string) []*event.Object {
	src := c.sources[source]
	if namespaces, all := c.scope.Only(); !all {
		visible := collection{found: found}
		src.stores[store].within(namespaces, src.indexes[index], value, index == "", visible.add)
		return visible.objects()
	}
	if index == "" {
		return slices.AppendSeq(found, src.stores[store].all())
	}
	return src.stores[store].lookup(found, src.indexes[index], value)
}

// Has reports whether the index of the source would have the object under value. The object need
// not be in the cache.
func (c *Catalog) Has(source, index, value string, o *event.Object) bool {
	src := c.sources[source]
	return c.scope.Sees(o.Home()) && len(src.stores) > 0 && src.stores[0].has(src.indexes[index], value, o)
}

// Count returns the number of objects that [Catalog.Lookup] would return.
func (c *Catalog) Count(source, index, value string) int {
	src, n := c.sources[source], 0
	namespaces, all := c.scope.Only()
	for _, store := range src.stores {
		if !all {
			store.within(namespaces, src.indexes[index], value, index == "", func(entry) { n++ })
			continue
		}
		if index == "" {
			n += int(store.count.Load())
			continue
		}
		n += store.countOf(src.indexes[index], value)
	}
	return n
}

// Get returns one object of the source, or nil. The namespace is empty for cluster-scoped objects.
func (c *Catalog) Get(source, namespace, name string) *event.Object {
	for _, store := range c.sources[source].stores {
		if e := store.entry(event.Key{Namespace: namespace, Name: name}.String()); e != nil && c.scope.Sees(e.home()) {
			return e.read()
		}
	}
	return nil
}
