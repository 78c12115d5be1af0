package index

import (
	"iter"
	"sync"
	"sync/atomic"

	"k8s.io/client-go/tools/cache"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// Store holds the objects of one watch. It implements the store that the informer writes to. It is safe for concurrent use;
// writers are serialised by the informer's cut lock.
type Store struct {
	indexer cache.Indexer
	specs   []Spec
	builtin sync.Mutex // held while a built-in index is being added
	bytes   atomic.Int64
	count   atomic.Int64
}

// entry is what the Indexer holds: an object, and for each Spec the values it is found under.
type entry struct {
	object *event.Object
	key    string
	values [][]string
}

// NewStore returns an empty store with the given indexes. Two Specs of one name are the same index.
func NewStore(specs ...Spec) *Store {
	indexers := make(cache.Indexers, len(specs))
	s := &Store{}
	for _, spec := range specs {
		if _, ok := indexers[spec.Name]; ok {
			continue
		}
		n := len(s.specs)
		s.specs = append(s.specs, spec)
		indexers[spec.Name] = func(item any) ([]string, error) { return item.(*entry).values[n], nil }
	}
	s.indexer = cache.NewIndexer(func(item any) (string, error) { return item.(*entry).key, nil }, indexers)
	return s
}

// Get returns the object of that key, or nil.
func (s *Store) Get(key event.Key) *event.Object {
	if e := s.entry(key.String()); e != nil {
		return e.object
	}
	return nil
}

// Put adds the object or replaces the one of its key.
func (s *Store) Put(o *event.Object) {
	e := &entry{object: o, key: o.Key().String()}
	if len(s.specs) > 0 {
		e.values = make([][]string, len(s.specs))
		for i := range s.specs {
			e.values[i] = s.specs[i].values(o)
		}
	}
	size := o.Size()
	if old := s.entry(e.key); old != nil {
		size -= old.object.Size()
		e.key = old.key // so that the map's key and the entry share one string
	} else {
		s.count.Add(1)
	}
	s.bytes.Add(int64(size))
	_ = s.indexer.Update(e) // fails only if the key function does
}

// Delete removes the object of that key, if there is one.
func (s *Store) Delete(key event.Key) {
	e := s.entry(key.String())
	if e == nil {
		return
	}
	s.count.Add(-1)
	s.bytes.Add(-int64(e.object.Size()))
	_ = s.indexer.Delete(e)
}

// All yields every object, in no order. It sees the store as it was when the iteration began.
func (s *Store) All() iter.Seq[*event.Object] {
	return func(yield func(*event.Object) bool) {
		for _, item := range s.indexer.List() {
			if !yield(item.(*entry).object) {
				return
			}
		}
	}
}

// Len returns how many objects the store holds.
func (s *Store) Len() int { return int(s.count.Load()) }

// Bytes returns about how much memory the objects take, in bytes.
func (s *Store) Bytes() int64 { return s.bytes.Load() }

// lookup appends to found the objects that the index has under value. An unknown index has none.
func (s *Store) lookup(found []*event.Object, index, value string) []*event.Object {
	s.ensureBuiltin(index)
	items, err := s.indexer.ByIndex(index, value)
	if err != nil {
		return found
	}
	for _, item := range items {
		found = append(found, item.(*entry).object)
	}
	return found
}

func (s *Store) countOf(index, value string) int {
	s.ensureBuiltin(index)
	keys, err := s.indexer.IndexKeys(index, value)
	if err != nil {
		return 0
	}
	return len(keys)
}

// ensureBuiltin adds a built-in index when it is first asked for; client-go then goes through the objects once.
func (s *Store) ensureBuiltin(index string) {
	values, ok := builtins[index]
	if !ok {
		return
	}
	s.builtin.Lock()
	defer s.builtin.Unlock()
	if _, ok := s.indexer.GetIndexers()[index]; ok {
		return
	}
	_ = s.indexer.AddIndexers(cache.Indexers{index: func(item any) ([]string, error) {
		return values(item.(*entry).object), nil
	}})
}

func (s *Store) entry(key string) *entry {
	item, ok, _ := s.indexer.GetByKey(key)
	if !ok {
		return nil
	}
	return item.(*entry)
}
