package engine

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"sync/atomic"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/internal/fingerprint"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/informer"
)

// needsObjects reports whether all objects have to be restored before the start: a new route needs
// them.
func (s *State) needsObjects(p *compile.Plan) bool {
	return slices.ContainsFunc(p.Routes, func(r compile.Route) bool {
		if r.Existing != config.ExistingDeliver && r.WhenProgram == nil {
			return false
		}
		known, err := s.db.KnowsRoute(r.ID)
		return !known || err != nil
	})
}

// restoreWatch restores the saved state of a watch: its objects at once, or while it runs already.
// It returns false if there is none.
func (s *State) restoreWatch(ctx context.Context, w *informer.Watch, atOnce bool) (known bool, err error) {
	saved, err := s.db.ReadWatch(w.Spec().ID(), nil)
	if err != nil || saved == nil {
		return false, err
	}
	restored := informer.Restored{Cluster: saved.Cluster, Applied: saved.Applied, Reached: saved.Reached, Relisting: saved.Relisting, Kept: saved.Kept, Lossy: s.lossy}
	objects := &savedObjects{db: s.db, watch: w, reduce: w.Reducer(saved.Kept), log: s.log}
	if gvr := w.Spec().Resource; gvr.Group == "" && gvr.Resource == "secrets" || saved.Relisting || saved.Applied == "" || w.Finds() || w.Lacks(saved.Kept) {
		// only the identity of a Secret is known, a list is compared with all objects, other
		// watches wait for their namespaces, and objects without some fields are completed
		atOnce = true
	}
	more, err := objects.begin(atOnce)
	if err != nil {
		return false, err
	}
	if restored.Relisting = restored.Relisting || objects.unreadable.Load(); more {
		restored.Later = objects
	}
	for _, intent := range saved.Intents {
		restored.Intents = append(restored.Intents, objects.intent(intent))
	}
	w.Restore(restored)
	return true, w.Complete(ctx, s.log)
}

// savedObjects implements [informer.Saved] over the state file.
type savedObjects struct {
	db         *checkpoint.DB
	watch      *informer.Watch
	reduce     func(*event.Object) *event.Object // to the kept fields
	log        *slog.Logger
	next       string // see checkpoint.DB.ReadObjects
	unreadable atomic.Bool
}

// begin restores the first object, from which the watch learns its kind before discovery has
// answered, or all of them.
func (s *savedObjects) begin(all bool) (more bool, err error) {
	more, err = s.some(1, 1, s.watch.RestoreObject)
	for more && err == nil && all {
		more, err = s.some(chunk, runtime.GOMAXPROCS(0), s.watch.RestoreObject)
	}
	return more, err
}

// chunk is the number of objects that are read in one transaction. The writer may have to wait for
// it.
const chunk = 2000

// errUnreadable was logged with its reason.
var errUnreadable = errors.New("some objects are damaged")

// Next implements informer.Saved. It leaves one core to other goroutines.
func (s *savedObjects) Next(take func(*event.Object)) (more bool, err error) {
	more, err = s.some(chunk, max(1, runtime.GOMAXPROCS(0)-1), take)
	if err == nil && !more && s.unreadable.Load() {
		err = errUnreadable
	}
	return more, err
}

func (s *savedObjects) some(limit, cores int, take func(*event.Object)) (more bool, err error) {
	s.next, err = s.db.ReadObjects(s.watch.Spec().ID(), s.next, limit, cores, func(o checkpoint.Object) {
		if object := s.parse(o); object != nil {
			take(object)
		}
	})
	return s.next != "", err
}

// Object implements informer.Saved.
func (s *savedObjects) Object(key event.Key) (*event.Object, error) {
	o, err := s.db.ReadObject(s.watch.Spec().ID(), key)
	if err != nil || o == nil {
		return nil, err
	}
	if object := s.parse(*o); object != nil {
		return object, nil
	}
	return nil, errUnreadable
}

// intent returns the object of an intent, or its identity.
func (s *savedObjects) intent(saved checkpoint.Intent) *event.Object {
	if saved.JSON != "" {
		if o, err := event.ParseObject(s.watch.Resource(), saved.JSON); err == nil {
			return o
		}
	}
	return event.Identity(s.watch.Resource(), saved.Key, saved.UID)
}

// parse returns nil for an unreadable object, and records that there was one.
func (s *savedObjects) parse(o checkpoint.Object) *event.Object {
	object, err := event.ParseObject(s.watch.Resource(), o.JSON)
	if err != nil {
		s.log.Error("a saved object cannot be read; the resource is listed", "watch", s.watch.Spec().Resource.String(), "err", err)
		s.unreadable.Store(true)
		return nil
	}
	if object = s.reduce(object); o.Bare {
		past := o.Past
		if past == nil {
			past = &fingerprint.Past{}
		}
		object = object.AsBare(past)
	}
	return object
}
