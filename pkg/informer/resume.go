package informer

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// neverThere is the fed of a watch whose resource was confirmed not to exist before it was ever listed. The API server uses 0 for
// no state.
const neverThere = "0"

// Restored is what was saved of a watch: the sum of its [Changes].
type Restored struct {
	Cluster   string // that the objects are of, see [Client.Identity]; empty: not known
	Fed       string
	Relisting bool
	// Listed: a list was complete before, so what the next one brings is new rather than initial. A Fed that is not empty says so too.
	Listed bool
	// Objects are the states, made with [Watch.Resource]. One without a resourceVersion is an intent: of that uid deltas may have
	// been delivered, and nothing but its identity is known; those of one name come in the order of their gates. Where the watch keeps
	// more of its objects than an identity, but some of these are no more than that (Secrets), they have to be listed.
	Objects []*event.Object
	// Later has states that are restored while the watch goes on already; nil: there are none. None of them is an identity alone.
	Later Saved
}

// Restore makes the watch go on from what was saved, be it nothing but that there was such a watch. It is called before
// [Factory.Run], once. Nothing that is restored becomes a delta. The watch then resumes at Fed and lists nothing, and what happened
// meanwhile becomes deltas as if it happened now.
// Where that cannot be (the list at hand was not complete, the API server no longer knows what happened, has gone back in time, or is
// another cluster's) it lists, and the difference becomes deltas; what is gone is Deleted and Stale, intents too.
func (w *Watch) Restore(r Restored) {
	for _, o := range r.Objects {
		if o.ResourceVersion() != "" {
			w.RestoreObject(o)
		}
	}
	if r.Later != nil {
		w.loading = &loading{from: r.Later, done: make(chan struct{}), claimed: make(map[event.Key]bool)}
	}
	for _, o := range r.Objects {
		w.fetch(o.Key())
	}
	w.cut.Lock()
	defer w.cut.Unlock()
	for _, o := range r.Objects {
		if o.ResourceVersion() == "" {
			w.intend(o)
		}
	}
	w.cluster, w.fed, w.relisting = r.Cluster, r.Fed, r.Relisting
	if w.ledger != nil {
		w.ledger.cluster, w.ledger.fed, w.ledger.relisting = r.Cluster, r.Fed, r.Relisting
	}
	w.listed = r.Listed || r.Fed != ""
	w.epoch = -1
	w.latest.Store(true)
	w.resumable.Store(w.fed != "" && w.fed != neverThere && !w.relisting && !w.bare)
}

// intent is an identity of which no state is known.
type intent struct {
	*event.Object

	order int // one name may have had several of them, one after the other
}

// intend remembers an intent. It is kept beside the store: its name may be that of an older object, and the cache shows states.
func (w *Watch) intend(o *event.Object) {
	if old := w.store.Get(o.Key()); old != nil && old.UID() == o.UID() {
		if w.ledger != nil {
			w.ledger.forget(o, old) // the saved state stands for it
		}
		return
	}
	if w.intents == nil {
		w.intents = make(map[string]intent)
	}
	w.intents[o.UID()] = intent{o, len(w.intents)}
}

// RestoreObject is Restore for one state, and comes before it. It may be called from several goroutines at the same time, which is how
// many objects are restored fast.
func (w *Watch) RestoreObject(o *event.Object) {
	put := w.prepare(o)
	bare := !w.spec.identityOnly() && isBare(o)
	w.cut.Lock()
	defer w.cut.Unlock()
	w.learnKind(o)
	w.measure(w.store.Get(o.Key()), o)
	put()
	w.bare = w.bare || bare
}

// prepare does what it can of putting an object into the store.
func (w *Watch) prepare(o *event.Object) (put func()) {
	if store, ok := w.store.(interface {
		Prepare(o *event.Object) (put func())
	}); ok {
		return store.Prepare(o)
	}
	return func() { w.store.Put(o) }
}

// learnKind takes the kind, which only discovery will tell, from an object that has the watch's Resource. Nobody reads it yet.
func (w *Watch) learnKind(o *event.Object) {
	if resource := w.resource.Load(); resource.Kind == "" && o.Resource() == resource {
		resource.Kind = o.Raw().Get("kind").Str()
	}
}

// Resource returns what is watched, as all objects of the watch have it. Its Kind may be empty until discovery has answered.
func (w *Watch) Resource() *event.Resource { return w.resource.Load() }

// isBare reports whether nothing but its identity is there of an object.
func isBare(o *event.Object) bool {
	for name := range o.Raw().Get("metadata").Fields() { // first, because it says no soonest
		switch name {
		case "name", "namespace", "uid", "resourceVersion":
		default:
			return false
		}
	}
	for name := range o.Raw().Fields() {
		switch name {
		case "apiVersion", "kind", "metadata":
		default:
			return false
		}
	}
	return true
}

// resume starts the watch where the saved state ends, and lets the Reflector believe that this is a stream of initial events of
// which there are none. If that does not work out now but may later, the watch stays resumable.
func (lw *listerWatcher) resume(ctx context.Context, timeout *int64) (*reader, error) {
	w := lw.w
	r, err := lw.dial(ctx, metav1.ListOptions{ResourceVersion: w.Fed(), AllowWatchBookmarks: true, TimeoutSeconds: timeout}, true)
	w.resuming(ctx, err)
	return r, err
}

// resumeList is resume for where the Reflector lists: the list is empty, and at the resourceVersion where the saved state ends.
func (lw *listerWatcher) resumeList(ctx context.Context) (runtime.Object, error) {
	w, from := lw.w, lw.w.Fed()
	err := lw.retry(ctx, func() error { return w.mayGoOn(ctx, from) })
	w.resuming(ctx, err)
	list := &internalversion.List{Items: []runtime.Object{}}
	list.ResourceVersion = from
	return list, err
}

// resuming notes how an attempt to resume has ended.
func (w *Watch) resuming(ctx context.Context, err error) {
	if err == nil {
		w.resumed.Store(true)
	}
	if err == nil || ctx.Err() == nil && !apierrors.IsNotFound(err) {
		w.resumable.Store(false)
	}
}

// goOn takes the place of replace when the watch was resumed: nothing was listed, and what the store has stays.
func (w *Watch) goOn() {
	w.latest.Store(false)
	w.log.Info("watching on from where it was saved", "watch", w.name)
	if l := w.loading; l != nil {
		w.cut.Lock()
		l.wentOn = true
		ready := l.claimed == nil
		w.cut.Unlock()
		if !ready {
			return
		}
	}
	w.setSynced(true)
}

// lower reports whether a is known to be a lower resourceVersion than b.
func lower(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}

// advance sets fed. Once a resumed watch has come as far as the API server was when it was resumed, it has heard of all that happened
// before: an intent that did not turn up was about an object that was gone even when the state was saved. cut is held.
func (w *Watch) advance(version string) {
	w.fed = version
	if len(w.intents) == 0 || w.told == "" || lower(version, w.told) {
		return
	}
	for uid := range w.intents {
		w.resolveIntent(uid, false)
	}
}

// resolveIntent ends an intent, if there is one of that uid: its object is in the store from now on, or it is gone. cut is held.
func (w *Watch) resolveIntent(uid string, stored bool) {
	i, ok := w.intents[uid]
	if !ok {
		return
	}
	delete(w.intents, uid)
	switch {
	case w.ledger == nil:
	case stored:
		gate := make(chan struct{})
		close(gate)
		w.ledger.fresh[uid] = gate // it was asked for by another run, and is on disk
	default:
		w.ledger.forget(i.Object, w.store.Get(i.Key()))
	}
}
