package informer_test

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/deltarouter/deltarouter/internal/rawjson"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/informer"
	"github.com/deltarouter/deltarouter/test/must"
)

// later has the objects that are restored while the watch runs already.
type later struct {
	all     []*event.Object
	objects []*event.Object // of them, those that are not handed over yet
	hold    chan struct{}   // closed to start the restore; nil: at once
	broken  bool            // the first of them cannot be read
}

// take removes the objects from the restored state, in the order of their names.
func (l *later) take(r *informer.Restored) {
	l.objects = nil
	r.Objects = slices.DeleteFunc(r.Objects, func(o *event.Object) bool {
		if o.ResourceVersion() != "" {
			l.objects = append(l.objects, o)
		}
		return o.ResourceVersion() != ""
	})
	slices.SortFunc(l.objects, func(a, b *event.Object) int { return strings.Compare(a.Key().Name, b.Key().Name) })
	l.all = l.objects
	// identities are never restored later
	bare := slices.ContainsFunc(l.objects, func(o *event.Object) bool {
		return o.Raw().Get("metadata").Get("labels").Kind() == rawjson.Absent
	})
	if len(l.objects) > 0 && r.Applied != "" && !bare {
		r.Later = l
		return
	}
	r.Objects = append(r.Objects, l.objects...)
}

func (l *later) Next(take func(*event.Object)) (more bool, err error) {
	if l.hold != nil {
		<-l.hold
	}
	if l.broken {
		return true, errors.New("broken")
	}
	take(l.objects[0])
	l.objects = l.objects[1:]
	return len(l.objects) > 0, nil
}

func (l *later) Object(key event.Key) (*event.Object, error) {
	for _, o := range l.all {
		if o.Key() == key {
			return o, nil
		}
	}
	return nil, nil //nolint:nilnil // as promised
}

// TestWatchesOnWhileLoading is about deltas before all objects are restored: each finds the state
// that it needs, and an object that is restored later does not undo it. Operations that need all
// objects wait.
func TestWatchesOnWhileLoading(t *testing.T) {
	// Guarantee: restart-fast
	a, d := saved(t, options{})
	a.put("default/a", "db")    // 104
	a.delete("default/b")       // 105
	a.put("default/b", "web")   // 106
	a.delete("default/c")       // 107
	a.put("default/new", "web") // 108
	l := &later{hold: make(chan struct{})}
	r := restart(t, a, options{later: l}, d)
	eventually(t, "what happened", func() bool { return len(r.sink.peek()) == 5 })
	want := []string{"updated a 101>104", "deleted b 105>", "added b >106", "deleted c 107>", "added new >108"}
	if got := r.sink.versions(); !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	if old := r.sink.peek()[0].Old; !strings.Contains(string(old.JSON()), `"spec":{"x":1}`) {
		t.Errorf("old state %s", old.JSON())
	}
	if status, _ := r.factory.Status("pods"); status.Synced {
		t.Error("it has synced before all is there")
	}
	r.sink.take()
	resynced := make(chan informer.Resynced, 1)
	go func() {
		done, err := r.factory.Resync(t.Context(), "pods", nil)
		must.Report(t, err)
		resynced <- done
	}()
	close(l.hold)
	r.synced()
	if done := <-resynced; done.Objects != 3 {
		t.Errorf("a resync saw %d objects, want a, b and new", done.Objects)
	}
	if got := r.metric("source_objects", "pods"); got != 3 {
		t.Errorf("source_objects = %v, want 3", got)
	}
	must.Report(t, r.factory.AwaitLoaded(t.Context()))
	a.delete("default/a") // 109
	eventually(t, "the end of a", func() bool { return slices.Contains(r.sink.versions(), "deleted a 109>") })
	r.shutdown(d)
	if len(d.objects) != 2 {
		t.Errorf("on disk are %v, want b and new", d.objects)
	}
}

// TestListWaitsForLoading: a list is compared with all saved objects.
func TestListWaitsForLoading(t *testing.T) {
	a, d := saved(t, options{})
	a.put("default/a", "db") // 104
	a.delete("default/c")    // 105
	a.compact()
	l := &later{hold: make(chan struct{})}
	r := restart(t, a, options{later: l}, d)
	eventually(t, "a list", func() bool { return a.lists() > 0 })
	if got := r.sink.peek(); len(got) > 0 {
		t.Errorf("deltas before there is anything to compare with: %v", got)
	}
	close(l.hold)
	r.synced()
	got := r.sink.versions()
	slices.Sort(got)
	if want := []string{"deleted c 103>", "updated a 101>104"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestStoppedWhileLoading: a stop does not wait for the rest of the saved objects.
func TestStoppedWhileLoading(t *testing.T) {
	a, d := saved(t, options{})
	r := restart(t, a, options{later: &later{}}, d)
	r.shutdown(d)
	if len(d.objects) != 3 {
		t.Errorf("on disk are %v", d.objects)
	}
}

// TestUnreadableWhileLoading: a state file is damaged while it is read, and the resource is listed.
func TestUnreadableWhileLoading(t *testing.T) {
	a, d := saved(t, options{})
	a.put("default/a", "db") // 104
	r := restart(t, a, options{later: &later{broken: true}}, d)
	eventually(t, "a list", func() bool { return a.lists() > 0 })
	eventually(t, "a", func() bool {
		return slices.ContainsFunc(r.sink.versions(), func(s string) bool { return strings.HasSuffix(s, " a 101>104") || s == "added a >104" })
	})
	if !strings.Contains(r.log.String(), "saved objects cannot be read") {
		t.Errorf("the log is %s", r.log)
	}
}

// TestUnreadableIsNotSynced: a watch has resumed when its saved objects turn out to be damaged. Its
// source is synced when the list is applied, not before: a rescan of a condition, which waits for
// that, would take the objects that are not in the store for gone ones, and report that they left.
func TestUnreadableIsNotSynced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, d := saved(t, options{})
		listing := make(chan struct{}) // closed to answer the list
		a.onRequest(func(_ http.ResponseWriter, r *http.Request) bool {
			if kind := kindOf(r); kind != "LIST" && kind != "WATCHLIST" {
				return false
			}
			select {
			case <-listing:
				return false
			case <-r.Context().Done():
				return true
			}
		})
		l := &later{hold: make(chan struct{}), broken: true}
		r := restart(t, a, options{later: l}, d)
		a.awaitWatch()
		close(l.hold)
		synctest.Wait()
		if a.lists() == 0 {
			t.Error("nothing is listed")
		}
		select {
		case <-r.factory.Synced("pods"):
			t.Error("the source counts as synced without its objects")
		default:
		}
		if status, _ := r.factory.Status("pods"); status.Synced {
			t.Errorf("status %+v without the objects", status)
		}
		close(listing)
		r.synced()
		if n := r.metric("source_objects", "pods"); n != 3 {
			t.Errorf("synced with %v objects", n)
		}
	})
}
