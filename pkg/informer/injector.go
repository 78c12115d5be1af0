package informer

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/deltarouter/deltarouter/internal/rawjson"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/informer/internal/apply"
	"github.com/deltarouter/deltarouter/pkg/informer/internal/wire"
)

// Injector stands in for the API server of one [Watch] of a [Factory] that does not run. A test
// supplies the initial objects and their changes. All later steps are those of a running factory:
// the format drops fields, the namespace and the selectors filter the objects, and the same code
// admits and applies the deltas. A field selector compares the field of that path in the object, as
// API servers do for most of the fields that they support.
//
// The methods are called one at a time: first List or Resume, or Exists for each initial object and
// then Listed. Their texts are whole objects in JSON, each with a uid and with a resourceVersion
// greater than all before.
type Injector struct {
	w        *Watch
	decoder  *wire.Decoder
	labels   labels.Selector
	selected fields.Selector
}

// Injector returns the injector of the watch. kind is the kind of the objects, as Pod; empty:
// unknown. An error means that a selector is invalid.
func (w *Watch) Injector(kind string) (*Injector, error) {
	w.target.SetKind(kind)
	f := &Injector{w: w, decoder: wire.NewDecoder(w.target.Format(), w.Resource())}
	var err error
	if f.labels, err = labels.Parse(w.spec.LabelSelector); err != nil {
		return nil, fmt.Errorf("labelSelector: %w", err)
	}
	if f.selected, err = fields.ParseSelector(w.spec.FieldSelector); err != nil {
		return nil, fmt.Errorf("fieldSelector: %w", err)
	}
	return f, nil
}

// SetKind sets the kind of the objects, if it becomes known later.
func (f *Injector) SetKind(kind string) {
	if f.w.Resource().Kind == kind {
		return
	}
	f.w.target.SetKind(kind)
	f.decoder = wire.NewDecoder(f.w.target.Format(), f.w.Resource())
}

// List applies the initial objects and marks the watch as synced.
func (f *Injector) List(ctx context.Context, texts []string, version string) error {
	var items []any
	for _, text := range texts {
		o, seen, err := f.object(text)
		if err != nil {
			return err
		}
		if seen {
			items = append(items, o)
		}
	}
	f.w.applier.Replace(ctx, items, version)
	return ctx.Err()
}

// Exists applies one initial object.
func (f *Injector) Exists(ctx context.Context, text string) error {
	o, seen, err := f.object(text)
	if err != nil || !seen {
		return err
	}
	return f.w.applier.Exists(ctx, o)
}

// Listed marks the watch as synced after all initial objects were applied.
func (f *Injector) Listed(ctx context.Context) error {
	var items []any
	for o := range f.w.state.All() {
		items = append(items, o)
	}
	f.w.applier.Replace(ctx, items, f.w.Applied())
	return ctx.Err()
}

// Resume marks the watch as synced like a restored watch that resumes, see [Watch.Restore], without
// a list. It replaces the call of List.
func (f *Injector) Resume() { f.w.applier.Resume() }

// Put applies the new state of an object: it is added, updated, or, if the selectors no longer
// match, deselected.
func (f *Injector) Put(ctx context.Context, text string) error {
	o, seen, err := f.object(text)
	if err != nil {
		return err
	}
	if seen {
		return f.w.applier.Put(ctx, o)
	}
	return f.w.applier.Leave(ctx, event.Deselected, o.Key(), nil, false, o.ResourceVersion())
}

// Delete applies the deletion of an object whose last state is text.
func (f *Injector) Delete(ctx context.Context, text string) error {
	return f.Remove(ctx, event.Deleted, text, false)
}

// Remove applies that an object, whose last state is text, was Deleted or Deselected. stale: the
// change was inferred.
func (f *Injector) Remove(ctx context.Context, op event.Op, text string, stale bool) error {
	last, _, err := f.object(text)
	if err != nil {
		return err
	}
	return f.w.applier.Leave(ctx, op, last.Key(), last, stale, last.ResourceVersion())
}

// Sync emits an object of the watch once more, as a resync does, with the current time.
func (f *Injector) Sync(ctx context.Context, key event.Key) error {
	return f.sync(ctx, key, func(*apply.Round) {})
}

// SyncAt is Sync as a part of the round that began at that time.
func (f *Injector) SyncAt(ctx context.Context, key event.Key, began time.Time) error {
	return f.sync(ctx, key, func(r *apply.Round) { r.Began = began })
}

func (f *Injector) sync(ctx context.Context, key event.Key, change func(*apply.Round)) error {
	for _, s := range f.w.sources.All() {
		round := f.w.applier.NewRound(s)
		change(round)
		if err := f.w.applier.Sync(ctx, round, key); err != nil {
			return err
		}
	}
	return nil
}

// Resync emits all objects once more, for one source, in the order of their names, with admit in
// place of Downstream's Admit.
func (f *Injector) Resync(ctx context.Context, source string, admit Admit) error {
	all := f.w.sources.All()
	i := slices.IndexFunc(all, func(s *apply.Source) bool { return s.Name == source })
	if i < 0 {
		return nil
	}
	var keys []event.Key
	for o := range f.w.state.All() {
		keys = append(keys, o.Key())
	}
	slices.SortFunc(keys, func(a, b event.Key) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	round := f.w.applier.NewRound(all[i])
	round.Admit = admit
	for _, key := range keys {
		if err := f.w.applier.Sync(ctx, round, key); err != nil {
			return err
		}
	}
	return nil
}

// object decodes a text into the format of the watch. seen: the watch selects the object.
func (f *Injector) object(text string) (o *event.Object, seen bool, err error) {
	whole, err := event.ParseObject(f.w.Resource(), text)
	if err != nil {
		return nil, false, err
	}
	if o, err = f.decoder.Keep(text); err != nil {
		return nil, false, fmt.Errorf("%s: %w", whole, err)
	}
	inside := f.w.spec.Namespace == "" || f.w.spec.Namespace == o.Key().Namespace
	return o, inside && f.labels.Matches(labels.Set(whole.Labels())) && f.selected.Matches(fieldsOf{whole}), nil
}

// fieldsOf gives a field selector access to the fields of an object.
type fieldsOf struct{ o *event.Object }

// Has implements fields.Fields.
func (f fieldsOf) Has(path string) bool { return f.Get(path) != "" }

// Get implements fields.Fields. A number, true or false is returned as its text, a missing field as
// an empty string.
func (f fieldsOf) Get(path string) string {
	value := f.o.Raw().Path(strings.Split(path, ".")...)
	if value.Kind() == rawjson.String {
		return value.Str()
	}
	return string(value)
}
