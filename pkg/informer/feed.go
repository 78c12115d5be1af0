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

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/rawjson"
)

// Feed stands in for the API server of one [Watch] of a [Factory] that does not run: a test says what there is and what changes. From
// there on all is as in a factory that runs: what the source does not keep is cut out, the namespace and the selectors decide what is
// seen, and deltas are admitted and applied by the same code. A field selector compares with the field of that path in the
// object, which is what API servers do for most of those that they know.
//
// The methods are called one at a time, List or Resume first, or Exists for each object that is there at first and then Listed. Their texts are whole objects in JSON, each with a uid and with a
// resourceVersion that is greater than all before.
type Feed struct {
	w        *Watch
	decoder  *decoder
	labels   labels.Selector
	selected fields.Selector
}

// Feed returns the feed of the watch. kind is that of the objects, Pod; empty: it is not known. The error says that a selector cannot
// be read.
func (w *Watch) Feed(kind string) (*Feed, error) {
	w.resource.Store(w.factory.resource(&w.spec, kind))
	f := &Feed{w: w, decoder: newDecoder(&w.spec, w.Resource())}
	var err error
	if f.labels, err = labels.Parse(w.spec.LabelSelector); err != nil {
		return nil, fmt.Errorf("labelSelector: %w", err)
	}
	if f.selected, err = fields.ParseSelector(w.spec.FieldSelector); err != nil {
		return nil, fmt.Errorf("fieldSelector: %w", err)
	}
	return f, nil
}

// List puts through what is there at first, and has the watch synced then.
func (f *Feed) List(ctx context.Context, texts []string, version string) error {
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
	f.w.replace(ctx, items, version)
	return ctx.Err()
}

// Exists puts through an object that is there at first.
func (f *Feed) Exists(ctx context.Context, text string) error {
	o, seen, err := f.object(text)
	if err != nil || !seen {
		return err
	}
	w := f.w
	if !w.order.take(ctx) {
		return ctx.Err()
	}
	defer w.order.give()
	if w.store.Get(o.Key()) == nil {
		w.apply(ctx, change{op: event.Added, now: o, initial: true})
	} else {
		w.put(ctx, o, false, "")
	}
	return ctx.Err()
}

// Listed has the watch synced: what is there at first has been put through.
func (f *Feed) Listed(ctx context.Context) error {
	var items []any
	for o := range f.w.store.All() {
		items = append(items, o)
	}
	f.w.replace(ctx, items, f.w.Fed())
	return ctx.Err()
}

// Resume has the watch synced as one that was restored, see [Watch.Restore], goes on: nothing is listed. It takes the place of List.
func (f *Feed) Resume() { f.w.goOn() }

// Put puts through that an object is now as text says: added, updated or, if the selectors stopped to match, deselected.
func (f *Feed) Put(ctx context.Context, text string) error {
	o, seen, err := f.object(text)
	if err != nil {
		return err
	}
	w := f.w
	if !w.order.take(ctx) {
		return ctx.Err()
	}
	defer w.order.give()
	if seen {
		w.put(ctx, o, false, o.ResourceVersion())
	} else if old := w.store.Get(o.Key()); old != nil {
		w.apply(ctx, change{op: event.Deselected, before: old, old: old, fed: o.ResourceVersion()})
	}
	return ctx.Err()
}

// Delete puts through that an object is gone, whose last state is text.
func (f *Feed) Delete(ctx context.Context, text string) error {
	return f.Remove(ctx, event.Deleted, text, false)
}

// Remove puts through that an object was Deleted or Deselected, whose last state is text. stale: that was inferred.
func (f *Feed) Remove(ctx context.Context, op event.Op, text string, stale bool) error {
	last, _, err := f.object(text)
	if err != nil {
		return err
	}
	w := f.w
	if !w.order.take(ctx) {
		return ctx.Err()
	}
	defer w.order.give()
	if old := w.store.Get(last.Key()); old != nil {
		w.apply(ctx, change{op: op, before: old, old: last, stale: stale, fed: last.ResourceVersion()})
	}
	return ctx.Err()
}

// Sync puts an object through once more, if the watch sees it, as a resync does now.
func (f *Feed) Sync(ctx context.Context, key event.Key) error {
	return f.SyncAt(ctx, key, f.w.factory.cfg.Clock.Now())
}

// SyncAt is Sync as a part of the round that began at that time.
func (f *Feed) SyncAt(ctx context.Context, key event.Key, round time.Time) error {
	for _, s := range *f.w.sources.Load() {
		var done Resynced
		if err := f.w.sync(ctx, s, key, round, f.w.factory.cfg.Downstream.Admit, &done); err != nil {
			return err
		}
	}
	return nil
}

// Resync puts all objects through once more, for one source, in the order of their names, to admit in the place of Downstream's.
func (f *Feed) Resync(ctx context.Context, source string, admit Admit) error {
	all := *f.w.sources.Load()
	i := slices.IndexFunc(all, named(source))
	if i < 0 {
		return nil
	}
	var keys []event.Key
	for o := range f.w.store.All() {
		keys = append(keys, o.Key())
	}
	slices.SortFunc(keys, func(a, b event.Key) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	var done Resynced
	round := f.w.factory.cfg.Clock.Now()
	for _, key := range keys {
		if err := f.w.sync(ctx, all[i], key, round, admit, &done); err != nil {
			return err
		}
	}
	return nil
}

// named finds a source by its name.
func named(name string) func(*source) bool { return func(s *source) bool { return s.Name == name } }

// object makes of a text what the watch has of it. seen: it is one of those that are watched.
func (f *Feed) object(text string) (o *event.Object, seen bool, err error) {
	whole, err := event.ParseObject(f.w.Resource(), text)
	if err != nil {
		return nil, false, err
	}
	if f.w.spec.metadataOnly() {
		text = `{"metadata":` + string(whole.Raw().Get("metadata")) + "}"
	}
	end, spans, err := f.decoder.finder.Scan(text, 0)
	if err != nil {
		return nil, false, fmt.Errorf("%s: %w", whole, err)
	}
	if o, err = f.decoder.object(text, 0, end, spans); err != nil {
		return nil, false, fmt.Errorf("%s: %w", whole, err)
	}
	inside := f.w.spec.Namespace == "" || f.w.spec.Namespace == o.Key().Namespace
	return o, inside && f.labels.Matches(labels.Set(whole.GetLabels())) && f.selected.Matches(fieldsOf{whole}), nil
}

// fieldsOf lets a field selector look into an object.
type fieldsOf struct{ o *event.Object }

// Has implements fields.Fields.
func (f fieldsOf) Has(path string) bool { return f.Get(path) != "" }

// Get implements fields.Fields. A number, true or false is its text; what is not there is empty.
func (f fieldsOf) Get(path string) string {
	value := f.o.Raw().Path(strings.Split(path, ".")...)
	if value.Kind() == rawjson.String {
		return value.Str()
	}
	return string(value)
}
