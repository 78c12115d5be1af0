package informer

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/deltarouter/deltarouter/internal/backoff"
	"github.com/deltarouter/deltarouter/internal/kept"
	"github.com/deltarouter/deltarouter/internal/rawjson"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/informer/internal/apply"
	"github.com/deltarouter/deltarouter/pkg/informer/internal/persist"
	"github.com/deltarouter/deltarouter/pkg/informer/internal/reflector"
)

// keeping is the part of a Watch with `cache: auto` that knows the fields that its objects have.
// The fields are no part of the [Spec]: the watch goes on when they change, and its saved state is
// that of the watch with other fields.
//
// While the fields change there are two sets: the wanted one, which the objects of new responses
// have, and the complete one, which all objects of the store have.
type keeping struct {
	w *Watch
	// auto: the watch has kept fields; otherwise it keeps whole objects.
	auto             bool
	wanted, complete kept.Set
	// selections has the selections of both sets; nil: whole objects.
	selections *atomic.Pointer[[2]*rawjson.Selection]
	number     int64 // of the format with the wanted set
	inquiry    *reflector.Inquiry
	reopen     func()
}

func newKeeping(w *Watch) keeping {
	k := keeping{w: w, auto: w.spec.Cache == config.CacheAuto, selections: &atomic.Pointer[[2]*rawjson.Selection]{}}
	k.want(kept.Whole())
	k.setComplete(kept.Whole())
	return k
}

// Add adds the wanted watch, see [Factory.Watch].
func (w *Wanted) Add(f *Factory) *Watch {
	watch := f.Watch(w.Spec, w.Store, w.Sources...)
	watch.keep(w.fields())
	return watch
}

// keep sets the fields that the objects of a watch with `cache: auto` have. It is called before
// [Watch.Restore] and [Factory.Run]; afterwards see [Factory.Widen]. Without it they have all.
func (w *Watch) keep(fields kept.Set) {
	if w.keeping.auto {
		w.keeping.want(fields)
		w.keeping.setComplete(fields)
	}
}

// want sets the fields of the objects of all later responses.
func (k *keeping) want(fields kept.Set) {
	k.wanted = fields
	format := k.w.spec.format()
	if within := k.w.within(); within != nil {
		format.Within = within.Has
	}
	format.Keep = fields.Selection()
	format.MetadataOnly = format.MetadataOnly || fields.InMetadata()
	k.number = k.w.target.SetFormat(format)
	k.publish()
}

// setComplete records that all objects of the store have these fields, or more.
func (k *keeping) setComplete(fields kept.Set) {
	k.complete = fields
	if k.auto {
		k.w.state.SetKept(fields.Text())
	}
	k.publish()
}

func (k *keeping) publish() {
	k.selections.Store(&[2]*rawjson.Selection{k.wanted.Selection(), k.complete.Selection()})
}

// common returns the function that reduces an object to the fields that all objects have; nil: they
// never change.
func (w *Watch) common() func(o *event.Object) string {
	if !w.keeping.auto {
		return nil
	}
	selections := w.keeping.selections
	return func(o *event.Object) string {
		text := string(o.Raw())
		for _, selection := range selections.Load() {
			if selection != nil {
				text = string(selection.Append(nil, text))
			}
		}
		return text
	}
}

// reducer returns a function that reduces an object to some fields.
func reducer(fields kept.Set) func(o *event.Object) *event.Object {
	selection := fields.Selection()
	return func(o *event.Object) *event.Object {
		if selection == nil {
			return o
		}
		text := selection.Append(make([]byte, 0, len(o.Raw())/2), string(o.Raw()))
		if len(text) == len(o.Raw()) {
			return o
		}
		text = append(make([]byte, 0, len(text)), text...)
		reduced, err := event.ParseObject(o.Resource(), unsafe.String(&text[0], len(text)))
		if err != nil {
			return o
		}
		return reduced
	}
}

// Reducer returns the function to apply to saved objects before [Watch.RestoreObject]: the watch
// may keep fewer fields than it did. text is that of [Restored].
func (w *Watch) Reducer(text string) func(o *event.Object) *event.Object {
	if !w.keeping.auto || w.keeping.wanted.Covers(savedFields(text)) {
		return func(o *event.Object) *event.Object { return o }
	}
	return reducer(w.keeping.wanted)
}

// Lacks reports whether saved objects lack fields that the watch keeps now. text is that of
// [Restored].
func (w *Watch) Lacks(text string) bool {
	return w.keeping.auto && !savedFields(text).Covers(w.keeping.wanted)
}

// savedFields returns the fields of saved objects. Without a record of them they are whole.
func savedFields(text string) kept.Set {
	if fields, err := kept.Parse(text); err == nil {
		return fields
	}
	return kept.Whole()
}

// restored notes the fields of the restored objects.
func (k *keeping) restored(text string) {
	if k.w.Lacks(text) {
		k.setComplete(savedFields(text).And(k.wanted))
	}
}

// Complete requests the fields of the restored objects that the watch did not keep before, see
// [Watch.Lacks]. It is called after [Watch.Restore], before the objects are used and before
// [Factory.Run]. Objects that have changed since then are completed by their changes. It waits for
// the API server, until ctx is done; a resource that the API server refuses is left as it is.
func (w *Watch) Complete(ctx context.Context, log *slog.Logger) error {
	k := &w.keeping
	if k.complete.Covers(k.wanted) || k.inquiry == nil || !k.w.hasClient {
		return nil
	}
	version, ok := w.state.Position.Complete()
	if !ok {
		version = ""
	}
	pause := backoff.Series{Policy: backoff.Policy{Min: 500 * time.Millisecond, Max: 30 * time.Second}}
	for {
		_, err := k.fill(ctx, version)
		if err == nil {
			log.Info("the configuration reads more fields than before; the saved objects were completed", "watch", w.name)
			k.setComplete(k.wanted)
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if version != "" && reflector.IsAnswered(err) { // the API server may have dropped that state
			version = ""
			continue
		}
		if reflector.IsRefused(err) {
			log.Error("the configuration reads more fields than before, and the saved objects lack them, because they cannot be listed", "watch", w.name, "err", err)
			return nil
		}
		log.Warn("the configuration reads more fields than before; the start waits until the saved objects can be listed", "watch", w.name, "err", err)
		if err := pause.Wait(ctx, 0); err != nil {
			return err
		}
	}
}

// fill lists the objects, as of exactly a version or of now, and completes those of the store that
// are in the same state. It returns the others.
func (k *keeping) fill(ctx context.Context, version string) (others []*event.Object, err error) {
	all, err := k.inquiry.All(ctx, version)
	if err != nil {
		return nil, err
	}
	return k.completeAll(ctx, all)
}

func (k *keeping) completeAll(ctx context.Context, all []*event.Object) (others []*event.Object, err error) {
	for _, o := range all {
		same, err := apply.Complete(ctx, k.w.applier, o)
		if err != nil {
			return nil, err
		}
		if !same {
			others = append(others, o)
		}
	}
	return others, nil
}

// widen makes all objects of a running watch have more fields. Deltas go on meanwhile.
func (k *keeping) widen(ctx context.Context, fields kept.Set) error {
	if !k.wanted.Covers(fields) {
		k.want(k.wanted.Or(fields))
	}
	if err := k.await(ctx, func() bool {
		if k.w.target.Reached(k.number) {
			return true
		}
		k.reopen()
		return false
	}); err != nil {
		return err
	}
	// From here on all objects arrive with the fields, and those that arrived before are in the
	// store. The list is newer than those.
	others, err := k.fill(ctx, "")
	if err != nil {
		return fmt.Errorf("%s cannot be listed now: %w", k.w.name, err)
	}
	// The list has the others in states whose events are still to come.
	if err := k.await(ctx, func() bool { return k.applied(others) }); err != nil {
		return err
	}
	if _, err := k.completeAll(ctx, others); err != nil {
		return err
	}
	k.setComplete(k.wanted)
	return nil
}

// applied reports whether the changes that led to these objects are applied.
func (k *keeping) applied(objects []*event.Object) bool {
	version := k.w.Applied()
	for _, o := range objects {
		if persist.Lower(version, o.ResourceVersion()) {
			return false
		}
		// the version of several events, of which some are to come
		if version == o.ResourceVersion() && persist.Older(cmp.Or(k.w.state.Get(o.Key()), o), o) {
			return false
		}
	}
	return true
}

// widenLook is the interval at which [keeping.await] looks again.
const widenLook = 20 * time.Millisecond

// await waits until done, or until the API server does not answer.
func (k *keeping) await(ctx context.Context, done func() bool) error {
	look := time.NewTicker(widenLook)
	defer look.Stop()
	for !done() {
		if _, reason, _ := k.w.health.State(); reason != "" {
			return fmt.Errorf("%s cannot be listed now: %s", k.w.name, reason)
		}
		select {
		case <-k.w.stopped:
			return ErrSourceChanged
		case <-ctx.Done():
			return fmt.Errorf("%s: its objects have not arrived yet: %w", k.w.name, ctx.Err())
		case <-look.C:
		}
	}
	return nil
}

// Widen makes the objects of the running watches have all wanted fields, too, one watch after the
// other. It is called before [Factory.Reconfigure], so that the new routes find these fields in
// each object. After an error the objects of some watches may have more fields than before, and the
// call may be repeated.
func (f *Factory) Widen(ctx context.Context, wanted []Wanted) error {
	f.changing.Lock()
	defer f.changing.Unlock()
	for _, want := range wanted {
		for _, w := range f.watches { // they only change under changing
			if w.spec != want.Spec || !w.keeping.auto || w.keeping.complete.Covers(want.fields()) {
				continue
			}
			if err := widen(ctx, f, w, want.fields()); err != nil {
				return err
			}
		}
	}
	return nil
}

func widen(ctx context.Context, f *Factory, w *Watch, fields kept.Set) error {
	f.mu.RLock()
	runs := w.stop != nil
	f.mu.RUnlock()
	if !runs || w.isUnserved() {
		w.keeping.want(w.keeping.wanted.Or(fields))
		w.keeping.setComplete(w.keeping.wanted)
		return nil
	}
	return w.keeping.widen(ctx, fields)
}

// isUnserved reports whether the watch has no objects because the API server refuses the resource,
// or does not have it.
func (w *Watch) isUnserved() bool {
	if _, reason, _ := w.health.State(); reason == "" {
		return false
	}
	for range w.state.All() {
		return false
	}
	return true
}

// fields returns the fields that the wanted watch keeps.
func (w *Wanted) fields() kept.Set {
	if w.Kept == nil {
		return kept.Whole()
	}
	return kept.Of(w.Kept...).Or(kept.Identity())
}

// narrow makes the watches keep no other fields than the wanted ones.
func narrow(ctx context.Context, watches []*Watch, wanted []Wanted) {
	for _, want := range wanted {
		for _, w := range watches {
			if w.spec == want.Spec {
				w.keeping.narrow(ctx, want.fields())
			}
		}
	}
}

func (k *keeping) narrow(ctx context.Context, fields kept.Set) {
	if !k.auto || k.wanted.Equal(fields) && k.complete.Equal(fields) {
		return
	}
	if !k.complete.Covers(fields) { // without Widen
		k.want(k.wanted.Or(fields))
		return
	}
	k.want(fields)
	k.setComplete(fields)
	k.reopen()
	_ = apply.Reduce(ctx, k.w.applier, reducer(fields)) // the rest is reduced by its changes
}
