package kubestatus

import (
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/index"
	"github.com/deltarouter/deltarouter/test/must"
)

// object returns a Route as the API server sends it. version is its resourceVersion.
func object(t *testing.T, name, version, generation string) *event.Object {
	t.Helper()
	text := `{"apiVersion":"deltarouter.io/v1alpha1","kind":"Route","metadata":{"name":"` + name + `","namespace":"ns","uid":"u-` + name +
		`","generation":` + generation + `,"resourceVersion":"` + version + `"},"spec":{"to":["out"],"from":["pods"],"filter":"a ==\n\"b\""},` +
		`"status":{"observedGeneration":1,"conditions":[{"type":"Ready","status":"True"}]}}`
	o, err := event.ParseObject(&event.Resource{GroupVersionResource: schema.GroupVersionResource{}}, text)
	must.Succeed(t, err)
	return o
}

func names(w *Watcher) string {
	var all []string
	for _, o := range w.Objects() {
		all = append(all, o.Name)
	}
	return strings.Join(all, " ")
}

// TestWatcherChanges shows that specs and deletions are changes, that a status is none, and that
// the objects of the last run go when the API server does not list them.
func TestWatcherChanges(t *testing.T) { synctest.Test(t, testWatcherChanges) }

func testWatcherChanges(t *testing.T) {
	w := New(Config{Log: slog.New(slog.DiscardHandler)}, []*Object{{Key: Key{Route, "ns", "gone"}}, {Key: Key{Route, "ns", "kept"}, UID: "u-kept", Generation: 1, Text: []byte("former")}})
	defer w.Stop()
	w.listed = make(map[Key]bool)
	cache := store{index.NewStore(), w, Route}
	changed := func() bool {
		time.Sleep(2 * settle) // of the bubble's clock
		synctest.Wait()
		select {
		case <-w.Changed():
			return true
		default:
			return false
		}
	}
	cache.Put(object(t, "kept", "5", "1"))
	if changed() || string(w.Objects()[1].Text) != "former" {
		t.Error("an object that has not changed is a change")
	}
	cache.Put(object(t, "new", "6", "1"))
	if !changed() || names(w) != "gone kept new" {
		t.Errorf("got %s", names(w))
	}
	w.await(t.Context(), nil)
	if !changed() || names(w) != "kept new" {
		t.Errorf("after the list: got %s", names(w))
	}
	cache.Put(object(t, "new", "7", "1"))
	if changed() {
		t.Error("a status is a change")
	}
	cache.Put(object(t, "new", "8", "2"))
	if !changed() || w.Objects()[1].Generation != 2 {
		t.Error("another spec is no change")
	}
	cache.Delete(event.Key{Namespace: "ns", Name: "new"})
	if !changed() || names(w) != "kept" {
		t.Errorf("after a deletion: got %s", names(w))
	}
	cache.Delete(event.Key{Namespace: "ns", Name: "kept"})
	w.Follow(t.Context(), Watched{})
	if !changed() {
		t.Error("the watches were replaced, and a change that waited is lost")
	}
}

// TestPace shows that the first changes are reported at once, that an object which changes all the
// time does not cause more reloads than there is time for, and that others wait for seconds only.
func TestPace(t *testing.T) { synctest.Test(t, testPace) }

func testPace(t *testing.T) {
	w := New(Config{Log: slog.New(slog.DiscardHandler)}, nil)
	defer w.Stop()
	cache, generation := store{index.NewStore(), w, Route}, 0
	// changes changes an object all the time, and returns the number of reloads
	changes := func(work, during time.Duration) (n int) {
		for end := time.Now().Add(during); time.Now().Before(end); {
			generation++
			cache.Put(object(t, "flaps", strconv.Itoa(generation), strconv.Itoa(generation)))
			time.Sleep(settle / 2) // of the bubble's clock
			select {
			case <-w.Changed():
				n++
				w.Worked(work)
			default:
			}
		}
		return n
	}
	if n := changes(time.Second, 2*time.Second); n < 10 {
		t.Errorf("%d of the first changes were reported", n)
	}
	changes(time.Second, time.Minute) // until there is no time left
	if n := changes(time.Second, time.Minute); n < 8 || n > 16 {
		t.Errorf("%d reloads of a second in a minute", n)
	}
	if n := changes(time.Millisecond, time.Minute); n < 40 || n > 70 {
		t.Errorf("%d short reloads in a minute", n)
	}
}

// TestOldestFirst shows that new objects come behind old ones, whatever their names are: a limit
// rejects the last ones.
func TestOldestFirst(t *testing.T) {
	w := New(Config{Log: slog.New(slog.DiscardHandler)}, nil)
	defer w.Stop()
	for name, created := range map[string]string{"a": "2026-11-23T10:00:01Z", "b": "2026-11-23T09:59:59Z", "c": "2026-11-23T10:00:01Z"} {
		text := `{"metadata":{"name":"` + name + `","namespace":"ns","uid":"u","generation":1,"resourceVersion":"1","creationTimestamp":"` + created + `"}}`
		o, err := event.ParseObject(&event.Resource{GroupVersionResource: schema.GroupVersionResource{}}, text)
		must.Succeed(t, err)
		store{index.NewStore(), w, Route}.Put(o)
	}
	if got := names(w); got != "b a c" {
		t.Errorf("got %s", got)
	}
}

// TestText shows that the text of an object is that of kubectl get, without the status.
func TestText(t *testing.T) {
	o, err := parse(Route, object(t, "web", "5", "1").JSON(), nil)
	must.Succeed(t, err)
	const want = `apiVersion: deltarouter.io/v1alpha1
kind: Route
metadata:
  generation: 1
  name: web
  namespace: ns
  resourceVersion: "5"
  uid: u-web
spec:
  filter: |-
    a ==
    "b"
  from:
  - pods
  to:
  - out
`
	if string(o.Text) != want || o.Status.condition(ready).Status != "True" || o.Key.String() != "route/web -n ns" {
		t.Errorf("got %s: %+v\n%s", o.Key, o.Status, o.Text)
	}
}
