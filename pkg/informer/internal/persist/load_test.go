package persist

import (
	"context"
	"errors"
	"iter"
	"maps"
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/test/must"
)

type store map[event.Key]*event.Object

func (s store) Get(key event.Key) *event.Object { return s[key] }
func (s store) Put(o *event.Object)             { s[o.Key()] = o }
func (s store) Delete(key event.Key)            { delete(s, key) }
func (s store) All() iter.Seq[*event.Object]    { return maps.Values(s) }

// saved has objects that are passed one at a time.
type saved struct {
	objects []*event.Object
	next    int
	asked   int // calls of Object
}

func (s *saved) Object(key event.Key) (*event.Object, error) {
	s.asked++
	for _, o := range s.objects {
		if o.Key() == key {
			return o, nil
		}
	}
	return nil, nil //nolint:nilnil // as promised
}

func (s *saved) Next(take func(*event.Object)) (more bool, err error) {
	take(s.objects[s.next])
	s.next++
	return s.next < len(s.objects), nil
}

func pod(t *testing.T, name string) *event.Object {
	t.Helper()
	resource := &event.Resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}}
	o, err := event.ParseObject(resource, `{"metadata":{"name":"`+name+`","uid":"`+name+`","resourceVersion":"1","labels":{}}}`)
	must.Succeed(t, err)
	return o
}

// TestLoadedLetsGo is about the end of loading: afterwards no delta reads the saved objects or
// takes the lock of the Loader, and the saved objects are released.
func TestLoadedLetsGo(t *testing.T) {
	from := &saved{objects: []*event.Object{pod(t, "a"), pod(t, "b"), pod(t, "c")}}
	objects := store{}
	s := New(Config{Store: objects, Learn: func(*event.Object) {}, Unreadable: func(err error) { t.Error(err) }})
	s.Restore(&Restored{Applied: "1", Later: from})
	l, done := s.Loader(), false
	s.WhenRestored(func() { done = true })
	l.Fetch(from.objects[1].Key())
	if len(objects) != 1 || from.asked != 1 || done {
		t.Fatalf("%d objects after %d questions, done: %v", len(objects), from.asked, done)
	}
	l.Run(t.Context())
	if len(objects) != 3 || !done || !l.Wait(t.Context()) {
		t.Errorf("%d objects, done: %v", len(objects), done)
	}
	if s.Loader() != nil {
		t.Error("the loader is still there")
	}
	s.Loader().Fetch(from.objects[0].Key())
	if from.asked != 1 {
		t.Error("a saved object is looked for once more")
	}
}

// slowly delays the answer to Object.
type slowly struct {
	*saved

	asked, answer chan struct{}
}

func (s *slowly) Object(key event.Key) (*event.Object, error) {
	close(s.asked)
	<-s.answer
	return s.saved.Object(key)
}

// TestLoadedWhileFetching is about an object that a delta fetches while Run passes all objects:
// they count as loaded only when the store has this one, too. Otherwise a resync would miss it, and
// a condition that holds for it would end.
func TestLoadedWhileFetching(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := &saved{objects: []*event.Object{pod(t, "a"), pod(t, "b")}}
		from := &slowly{all, make(chan struct{}), make(chan struct{})}
		objects := store{}
		s := New(Config{Store: objects, Learn: func(*event.Object) {}})
		s.Restore(&Restored{Applied: "1", Later: from})
		l, told, loaded := s.Loader(), 0, 0
		then := func() { told++; loaded = len(objects) }
		s.WhenRestored(then)
		go l.Fetch(all.objects[1].Key())
		<-from.asked
		go l.Run(t.Context())
		synctest.Wait()
		s.WhenRestored(then)
		if len(objects) != 1 || told != 0 || s.Loader() == nil {
			t.Errorf("%d objects, told %d times, loader %v", len(objects), told, s.Loader())
		}
		select {
		case <-l.done:
			t.Error("all objects count as loaded")
		default:
		}
		close(from.answer)
		if !l.Wait(t.Context()) {
			t.Error("the wait ends without the objects")
		}
		synctest.Wait()
		if told != 2 || loaded != 2 {
			t.Errorf("told %d times, with %d objects", told, loaded)
		}
	})
}

// damaged has an object that cannot be read, one or several times.
type damaged struct {
	*saved

	byKey, inOrder bool
}

func (d *damaged) Object(key event.Key) (*event.Object, error) {
	if d.byKey {
		return nil, errors.New("damaged")
	}
	return d.saved.Object(key)
}

func (d *damaged) Next(take func(*event.Object)) (more bool, err error) {
	if d.inOrder {
		return true, errors.New("damaged")
	}
	return d.saved.Next(take)
}

// TestUnreadableIsNotRestored is about a state of which an object cannot be read, for a delta or in
// order: it does not count as restored, neither at the end of the Loader nor later, until a list
// was applied.
func TestUnreadableIsNotRestored(t *testing.T) {
	for name, from := range map[string]*damaged{"for a delta": {byKey: true}, "in order": {inOrder: true}} {
		t.Run(name, func(t *testing.T) {
			from.saved = &saved{objects: []*event.Object{pod(t, "a"), pod(t, "b")}}
			s, told, lists := (*State)(nil), 0, 0
			s = New(Config{Store: store{}, Learn: func(*event.Object) {}, Unreadable: func(error) {
				lists++
				s.WhenRestored(func() { told++ })
			}})
			s.Restore(&Restored{Applied: "1", Later: from})
			s.WhenRestored(func() { told++ })
			s.Loader().Fetch(from.objects[1].Key())
			s.Loader().Run(t.Context())
			s.WhenRestored(func() { told++ })
			if told != 0 || lists != 1 || s.Loader() != nil {
				t.Errorf("told %d times, %d lists, loader %v", told, lists, s.Loader())
			}
			s.BeginReplace()
			s.EndReplace("2")
			if s.WhenRestored(func() { told++ }); told != 1 {
				t.Errorf("told %d times after the list", told)
			}
		})
	}
}

// TestLossy is about a state whose last cuts may be missing: until the watch has caught up with the
// API server, a new object may have been delivered before.
func TestLossy(t *testing.T) {
	object := func(version string) *event.Object {
		o, err := event.ParseObject(pod(t, "a").Resource(), `{"metadata":{"name":"a","uid":"a","resourceVersion":"`+version+`"}}`)
		must.Succeed(t, err)
		return o
	}
	open := func(r Restored) *State {
		s := New(Config{Store: store{}, Learn: func(*event.Object) {}})
		s.Restore(&r)
		return s
	}
	whole := open(Restored{Applied: "1"})
	whole.SetResumeTarget("10")
	if whole.Delivered(object("5")) {
		t.Error("a state with all cuts is unsure")
	}
	resumed := open(Restored{Applied: "1", Lossy: true})
	resumed.SetResumeTarget("10")
	for _, step := range []struct {
		version string
		want    bool
	}{{"9", true}, {"10", true}, {"11", false}, {"9", false}} {
		if got := resumed.Delivered(object(step.version)); got != step.want {
			t.Errorf("after a resume, version %s: %v, want %v", step.version, got, step.want)
		}
	}
	listed := open(Restored{Applied: "1", Lossy: true})
	listed.BeginReplace()
	if !listed.Delivered(object("20")) {
		t.Error("a list after the start is not unsure")
	}
	listed.EndReplace("20")
	if listed.Delivered(object("21")) {
		t.Error("the state is unsure after the list")
	}
}

// TestLoadingStopped is about a loader that is stopped: it stays in place, so that the store is not
// taken for complete.
func TestLoadingStopped(t *testing.T) {
	s := New(Config{Store: store{}, Learn: func(*event.Object) {}})
	s.Restore(&Restored{Applied: "1", Later: &saved{objects: []*event.Object{pod(t, "a")}}})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.Loader().Run(ctx)
	if s.Loader() == nil || s.Loader().Wait(ctx) {
		t.Error("it counts as loaded")
	}
}
