package index

import (
	"iter"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"k8s.io/client-go/tools/cache"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// Store contains the objects of one watch. The informer writes to it. It is safe for concurrent
// use; the informer's cut lock serialises the writers.
//
// It keeps objects that have not changed for one to two minutes in compressed form, and
// decompresses a copy of such an object for each reader; [Store.Compress] does not wait for that.
// If Go has a memory limit, the other objects of a Store take an eighth of it at most; see
// [debug.SetMemoryLimit]. Then those that came first are compressed at once.
type Store struct {
	live     atomic.Pointer[view]
	swapping sync.Mutex   // held while live is exchanged
	bytes    atomic.Int64 // of all objects
	plain    atomic.Int64 // of those that are not compressed
	resting  resting

	observing sync.Mutex // serialises the changes of observers
	observers atomic.Pointer[[]*observer]
}

// observer is an argument of [Store.Observe].
type observer func(before, now *event.Object)

// Observe calls f for each change: before is nil for an added object, now for a removed one. A
// caller that holds the cut lock sees every change from then on. The writers of the store wait for
// f, so f must not block. stop ends that; a call that has begun may still run.
func (s *Store) Observe(f func(before, now *event.Object)) (stop func()) {
	one := observer(f)
	s.observe(func(all []*observer) []*observer { return append(all, &one) })
	return func() {
		s.observe(func(all []*observer) []*observer {
			return slices.DeleteFunc(all, func(other *observer) bool { return other == &one })
		})
	}
}

// observe replaces the list of observers.
func (s *Store) observe(edit func([]*observer) []*observer) {
	s.observing.Lock()
	defer s.observing.Unlock()
	var all []*observer
	if now := s.observers.Load(); now != nil {
		all = slices.Clone(*now)
	}
	if all = edit(all); len(all) == 0 {
		s.observers.Store(nil)
		return
	}
	s.observers.Store(&all)
}

// changed calls the observers. before or now is nil.
func (s *Store) changed(before, now entry) {
	all := s.observers.Load()
	if all == nil {
		return
	}
	was, is := objectOf(before), objectOf(now)
	for _, f := range *all {
		(*f)(was, is)
	}
}

// view contains the objects under one set of indexes. A Store writes to its live view only. A
// replaced view does not change any more: expressions that are still running read it.
//
// client-go's thread-safe store, the base of its Indexer, keeps the objects and indexes. A look-up
// reads the indexes directly, because ByIndex would copy each set of keys and the objects in
// addition.
type view struct {
	indexer cache.ThreadSafeStore
	specs   []Spec
	// of indices. Each writer to indexer holds it, because the lock of indexer is not exported.
	lock    sync.RWMutex
	indices cache.Indices // the indices of indexer: index → value → keys
	count   atomic.Int64
	scratch sync.Pool // of *evaluation
}

// NewStore returns an empty store with the given indexes. Two Specs with one name are the same
// index.
func NewStore(specs ...Spec) *Store {
	s := &Store{resting: resting{pace: usualPace()}}
	s.live.Store(newView(specs))
	return s
}

func newView(specs []Spec) *view {
	indexers := make(cache.Indexers, len(specs))
	v := &view{indices: make(cache.Indices, len(specs))}
	for _, spec := range specs {
		if _, ok := indexers[spec.Name]; ok {
			continue
		}
		n := len(v.specs)
		v.specs = append(v.specs, spec)
		indexers[spec.Name] = func(item any) ([]string, error) { return item.(entry).base().values.of(n), nil }
	}
	v.indexer = cache.NewThreadSafeStore(indexers, v.indices)
	return v
}

// Indexes returns the names of the Specs, sorted.
func (s *Store) Indexes() []string { return names(s.live.Load().specs) }

func names(specs []Spec) []string {
	var all []string
	for i := range specs {
		all = append(all, specs[i].Name)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Reindex builds new indexes from the objects, while the present indexes stay in use. nil: the
// store has these indexes already. The returned function exchanges them. Like Put it must not run
// at the same time as a writer. It evaluates only the objects that have changed in between. A
// [Catalog] continues to use the indexes at the time of [Catalog.Add].
func (s *Store) Reindex(specs ...Spec) (swap func()) {
	if slices.Equal(s.Indexes(), names(specs)) {
		return nil
	}
	next := newView(specs)
	for _, item := range s.live.Load().indexer.List() {
		next.adopt(item.(entry))
	}
	return func() {
		s.swapping.Lock()
		defer s.swapping.Unlock()
		now := s.live.Load()
		for _, item := range next.indexer.List() {
			if key := item.(entry).base().key; now.entry(key) == nil {
				next.remove(key)
			}
		}
		for _, item := range now.indexer.List() {
			e := item.(entry)
			if !sameObject(next.entry(e.base().key), e) {
				next.adopt(e)
			}
		}
		s.live.Store(next)
	}
}

// adopt puts the object of an entry of another view.
func (v *view) adopt(e entry) {
	if len(v.specs) == 0 {
		v.insert(e.with(nil))
		return
	}
	v.insert(e.with(v.valuesOf(e.load(), v.valuesBefore(e.base().key))))
}

// Get returns the object with that key, or nil.
func (s *Store) Get(key event.Key) *event.Object { return objectOf(s.live.Load().entry(key.String())) }

// Put adds the object, or replaces the object with its key.
func (s *Store) Put(o *event.Object) {
	v := s.live.Load()
	s.insert(v, v.newEntry(o))
}

// Prepare evaluates the indexes for an object, and returns a function that completes the Put.
// Several goroutines may call Prepare at the same time.
func (s *Store) Prepare(o *event.Object) (put func()) {
	v := s.live.Load()
	e := v.newEntry(o)
	return func() { s.insert(v, e) }
}

func (s *Store) insert(v *view, e *plain) {
	before := v.insert(e)
	s.account(before, e)
	s.mark(e.key, before)
	s.relieve(v)
	s.changed(before, e)
}

// account counts the bytes of an entry that replaces another one. Each may be nil.
func (s *Store) account(before, now entry) {
	var all, plain int64
	add := func(e entry, sign int64) {
		if e == nil {
			return
		}
		size := sign * int64(e.size())
		all += size
		if isPlain(e) {
			plain += size
		}
	}
	add(before, -1)
	add(now, 1)
	s.bytes.Add(all)
	s.plain.Add(plain)
}

func (v *view) newEntry(o *event.Object) *plain {
	e := &plain{head{key: o.Key().String()}, o}
	if o.Key().Namespace == "" {
		e.key = strings.Clone(e.key) // the key of a replaced object stays, but not its text
	}
	if len(v.specs) > 0 {
		e.values = v.valuesOf(o, v.valuesBefore(e.key))
	}
	return e
}

// valuesBefore returns the values of the present object of a key, or nil.
func (v *view) valuesBefore(key string) *values {
	if e := v.entry(key); e != nil {
		return e.base().values
	}
	return nil
}

// insert returns the previous entry of the key, or nil.
func (v *view) insert(e entry) (before entry) {
	v.lock.Lock()
	defer v.lock.Unlock()
	if before = v.entry(e.base().key); before != nil {
		e.base().key = before.base().key // so that the map's key and the entry share one string
	} else {
		v.count.Add(1)
	}
	v.indexer.Update(e.base().key, e)
	return before
}

// Delete removes the object with that key, if there is one.
func (s *Store) Delete(key event.Key) {
	if before := s.live.Load().remove(key.String()); before != nil {
		s.account(before, nil)
		s.changed(before, nil)
	}
}

// remove returns the entry that it removes, or nil.
func (v *view) remove(key string) (before entry) {
	v.lock.Lock()
	defer v.lock.Unlock()
	if before = v.entry(key); before != nil {
		v.count.Add(-1)
		v.indexer.Delete(before.base().key)
	}
	return before
}

// All yields every object, unsorted. It iterates over the state at its start.
func (s *Store) All() iter.Seq[*event.Object] { return s.live.Load().all() }

func (v *view) all() iter.Seq[*event.Object] {
	return func(yield func(*event.Object) bool) {
		for _, item := range v.indexer.List() {
			if !yield(item.(entry).load()) {
				return
			}
		}
	}
}

// Len returns the number of objects.
func (s *Store) Len() int { return int(s.live.Load().count.Load()) }

// Bytes returns the approximate memory of the objects in bytes.
func (s *Store) Bytes() int64 { return s.bytes.Load() }

// lookup appends to found the objects that the index has under value. An unknown index has none.
func (v *view) lookup(found []*event.Object, index, value string) []*event.Object {
	v.ensureBuiltin(index)
	v.lock.RLock()
	keys := v.indices[index][value]
	c := collection{found: slices.Grow(found, len(keys))}
	for key := range keys {
		c.add(v.entry(key))
	}
	v.lock.RUnlock()
	return c.objects()
}

// within calls f with each entry of some namespaces that the index has under value, or with all of
// them. It visits the entries of the namespaces or those under value, whichever are fewer. f must
// not block.
func (v *view) within(namespaces []string, index, value string, all bool, f func(entry)) {
	v.ensureBuiltin(index)
	v.ensureBuiltin(ByNamespace)
	v.lock.RLock()
	defer v.lock.RUnlock()
	wanted, visible := v.indices[index][value], 0
	for _, namespace := range namespaces {
		visible += 1 + len(v.indices[ByNamespace][namespace])
	}
	if !all && len(wanted) < visible {
		for key := range wanted {
			if e := v.entry(key); e != nil && slices.Contains(namespaces, e.home()) {
				f(e)
			}
		}
		return
	}
	visit := func(key, namespace string) {
		if !all && !wanted.Has(key) {
			return
		}
		if e := v.entry(key); e != nil && e.home() == namespace {
			f(e)
		}
	}
	for i, namespace := range namespaces {
		if slices.Contains(namespaces[:i], namespace) {
			continue
		}
		visit(namespace, namespace) // the Namespace itself
		for key := range v.indices[ByNamespace][namespace] {
			visit(key, namespace)
		}
	}
}

// has reports whether the index has the object under value, also if the object is not in the store.
func (v *view) has(index, value string, o *event.Object) bool {
	if values, ok := builtins[index]; ok {
		return slices.Contains(values(o), value)
	}
	n := slices.IndexFunc(v.specs, func(s Spec) bool { return s.Name == index })
	return n >= 0 && slices.Contains(v.valuesOf(o, nil).of(n), value)
}

func (v *view) countOf(index, value string) int {
	v.ensureBuiltin(index)
	v.lock.RLock()
	defer v.lock.RUnlock()
	return len(v.indices[index][value])
}

// ensureBuiltin adds a built-in index at its first use. client-go then indexes all objects once.
func (v *view) ensureBuiltin(index string) {
	if builtins[index] == nil {
		return
	}
	v.lock.RLock()
	_, ok := v.indexer.GetIndexers()[index]
	v.lock.RUnlock()
	if ok {
		return
	}
	v.lock.Lock()
	defer v.lock.Unlock()
	// It fails if another goroutine has added the index in the meantime.
	_ = v.indexer.AddIndexers(cache.Indexers{index: func(item any) ([]string, error) {
		return builtinValues(index, item.(entry)), nil
	}})
}

// entry returns the entry of a key, or nil.
func (v *view) entry(key string) entry {
	item, ok := v.indexer.Get(key)
	if !ok {
		return nil
	}
	return item.(entry)
}
