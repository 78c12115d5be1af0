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

// Injector stands in for the API server of one [Watch] of a [Factory] that does not run: a test
// says what there is and what changes. From there on all is as in a factory that runs: what the
// source does not keep is cut out, the namespace and the selectors decide what is seen, and deltas
// are admitted and applied by the same code. A field selector compares with the field of that path
// in the object, which is what API servers do for most of those that they know.
//
// The methods are called one at a time, List or Resume first, or Exists for each object that is
// there at first and then Listed. Their texts are whole objects in JSON, each with a uid and with a
// resourceVersion that is greater than all before.
type Injector struct {
	w        *Watch
	decoder  *wire.Decoder
	labels   labels.Selector
	selected fields.Selector
}

// Injector returns the injector of the watch. kind is that of the objects, Pod; empty: it is not
// known. The error says that a selector cannot be read.
func (w *Watch) Injector(kind string) (*Injector, error) {
	w.target.SetKind(kind)
	f := &Injector{w: w, decoder: wire.NewDecoder(w.target.Format, w.Resource())}
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

// Exists puts through an object that is there at first.
func (f *Injector) Exists(ctx context.Context, text string) error {
	o, seen, err := f.object(text)
	if err != nil || !seen {
		return err
	}
	return f.w.applier.Exists(ctx, o)
}

// Listed has the watch synced: what is there at first has been put through.
func (f *Injector) Listed(ctx context.Context) error {
	var items []any
	for o := range f.w.state.All() {
		items = append(items, o)
	}
	f.w.applier.Replace(ctx, items, f.w.Applied())
	return ctx.Err()
}

// Resume has the watch synced as one that was restored, see [Watch.Restore], goes on: nothing is
// listed. It takes the place of List.
func (f *Injector) Resume() { f.w.applier.Resume() }

// Put puts through that an object is now as text says: added, updated or, if the selectors stopped
// to match, deselected.
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

// Delete puts through that an object is gone, whose last state is text.
func (f *Injector) Delete(ctx context.Context, text string) error {
	return f.Remove(ctx, event.Deleted, text, false)
}

// Remove puts through that an object was Deleted or Deselected, whose last state is text. stale:
// that was inferred.
func (f *Injector) Remove(ctx context.Context, op event.Op, text string, stale bool) error {
	last, _, err := f.object(text)
	if err != nil {
		return err
	}
	return f.w.applier.Leave(ctx, op, last.Key(), last, stale, last.ResourceVersion())
}

// Sync puts an object through once more, if the watch sees it, as a resync does now.
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

// Resync puts all objects through once more, for one source, in the order of their names, to admit
// in the place of Downstream's.
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

// object makes of a text what the watch has of it. seen: it is one of those that are watched.
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
