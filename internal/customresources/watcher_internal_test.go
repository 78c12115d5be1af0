package customresources

import (
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
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

// TestSaved shows that the objects are read as they were written, and that a damaged file is
// ignored.
func TestSaved(t *testing.T) {
	dir, log := t.TempDir(), slog.New(slog.DiscardHandler)
	if got := Load(dir, log); got.Objects != nil {
		t.Errorf("got %+v", got)
	}
	saved := Saved{
		Objects:  []*Object{{Key: Key{Route, "ns", "web"}, UID: "u", Generation: 3, Text: []byte("a: b\n")}},
		Accepted: map[string][]byte{"ns\x00route/web": []byte("a: c\n")},
	}
	must.Succeed(t, saved.Save(dir))
	if got := Load(dir, log); !reflect.DeepEqual(got, saved) {
		t.Errorf("got %+v", got)
	}
	must.Succeed(t, os.WriteFile(filepath.Join(dir, savedFile), []byte("{"), 0o600))
	if got := Load(dir, log); got.Objects != nil {
		t.Errorf("got %+v", got)
	}
	if Load("", log).Objects != nil || saved.Save("") != nil {
		t.Error("without a folder nothing is saved")
	}
	if saved.Save(filepath.Join(dir, "none")) == nil {
		t.Error("a folder that does not exist is no error")
	}
}
