package explain

import (
	"context"
	"fmt"
	"log/slog"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/internal/manifest"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/index"
	"github.com/deltarouter/deltarouter/pkg/informer"
)

// Objects returns the objects of a source as JSON. It is called once for each source in which an
// expression looks objects up, at the first look-up.
type Objects func(ctx context.Context, source string) ([][]byte, error)

// others is the cache of the configuration, filled source by source. It implements cel.Cache.
type others struct {
	o       *offline
	ctx     context.Context // of the explanation
	objects Objects
	delta   *event.Delta

	catalog *index.Catalog
	filled  sets.Set[string]
	err     error // the first one
}

// Lookup implements cel.Cache.
func (c *others) Lookup(source, index, value string) []*event.Object {
	c.fill(source)
	return c.catalog.Lookup(source, index, value)
}

// Count implements cel.Cache.
func (c *others) Count(source, index, value string) int {
	c.fill(source)
	return c.catalog.Count(source, index, value)
}

// Get implements cel.Cache.
func (c *others) Get(source, namespace, name string) *event.Object {
	c.fill(source)
	return c.catalog.Get(source, namespace, name)
}

// fill adds the objects of a source, with that of the delta as the cache has it then.
func (c *others) fill(source string) {
	if c.filled.Has(source) {
		return
	}
	c.filled.Insert(source)
	store, indexes, err := c.o.store(source)
	if err == nil {
		err = c.put(source, store)
	}
	if err != nil && c.err == nil {
		c.err = err
	}
	c.catalog.Add(source, []*index.Store{store}, indexes)
}

func (c *others) put(source string, store *index.Store) error {
	specs, err := informer.SpecsOf(c.o.cfg.Sources[source])
	if err != nil {
		return fmt.Errorf("source %q: %w", source, err)
	}
	objects, err := c.objects(c.ctx, source)
	if err != nil {
		return err
	}
	for _, text := range objects {
		object, err := informer.Keep(specs[0], c.o.cfg.Cluster.Name, string(text))
		if err != nil {
			return fmt.Errorf("an object of source %q: %w", source, err)
		}
		e := RouteExplanation{Verdict: Matches}
		if e.selected(c.o.cfg.Sources[source], object); e.Verdict == Matches {
			store.Put(object)
		}
	}
	switch d := c.delta; {
	case d.Source != source:
	case d.New == nil:
		store.Delete(d.Key())
	default:
		store.Put(d.New)
	}
	return nil
}

// store makes the empty store of a source.
func (o *offline) store(source string) (*index.Store, map[string]index.Spec, error) {
	indexes := make(map[string]index.Spec)
	var all []index.Spec
	for name, list := range o.cfg.Sources[source].Indexes {
		var texts []string
		var programs []*cel.Program
		for i := range list {
			program, err := o.env.Compile(list[i].Text, cel.Index, source)
			if err != nil {
				return index.NewStore(), nil, compile.ProblemsOf(o.cfg, &list[i], []string{source}, err)
			}
			texts, programs = append(texts, list[i].Text), append(programs, program)
		}
		indexes[name] = index.NewSpec(texts, programs, uncounted{}, slog.New(slog.DiscardHandler), source+"."+name)
		all = append(all, indexes[name])
	}
	return index.NewStore(all...), indexes, nil
}

// uncounted is a counter of failures that are not shown: an object without the values of an index
// is not in it, as in the running router.
type uncounted struct{}

// Inc implements the counter of an index.
func (uncounted) Inc() {}

// look returns the input of an expression about a delta.
func (o *offline) look(ctx context.Context, d *event.Delta) cel.Input {
	if o.objects == nil {
		return cel.Input{Delta: d}
	}
	if o.others == nil || o.others.delta.Source != d.Source {
		whole := o
		if o.whole != nil { // the indexes are those of the configuration
			whole = o.whole
		}
		o.others = &others{o: whole, ctx: ctx, objects: o.objects, delta: d, catalog: index.NewScopedCatalog(o.scope), filled: sets.New[string]()}
	}
	return cel.Input{Delta: d, Cache: o.others}
}

// lookError returns the reason why objects could not be looked up.
func (o *offline) lookError() error {
	for _, of := range o.fragments {
		if err := of.lookError(); err != nil {
			return err
		}
	}
	if o.others == nil {
		return nil
	}
	return o.others.err
}

// given sorts objects that a user wrote by the sources that have them.
func (o *offline) given(texts [][]byte) (Objects, error) {
	all := make(map[string][][]byte)
	for _, text := range texts {
		objects, err := manifest.Objects(text)
		if err != nil {
			return nil, fmt.Errorf("-given: %w", err)
		}
		for i, object := range objects {
			raw, err := readObject(object)
			if err != nil {
				return nil, fmt.Errorf("-given: object %d: %w", i+1, err)
			}
			names := o.sourcesOf(raw)
			if len(names) == 0 {
				return nil, fmt.Errorf("-given: object %d: no source has objects of %s %s: leave it out, or add a source",
					i+1, raw.Get("apiVersion").Str(), raw.Get("kind").Str())
			}
			for _, name := range names {
				all[name] = append(all[name], object)
			}
		}
	}
	return func(_ context.Context, source string) ([][]byte, error) { return all[source], nil }, nil
}
