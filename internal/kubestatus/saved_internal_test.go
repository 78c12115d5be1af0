package kubestatus

import (
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/deltarouter/deltarouter/test/must"
)

// TestSaved shows that objects are read as they were written, the oldest ones first, and that a
// damaged record is an error.
func TestSaved(t *testing.T) {
	objectOf := func(kind Kind, namespace, name, created string) *Object {
		return &Object{Key: Key{kind, namespace, name}, UID: "u-" + name, Generation: 3, Created: created, Text: []byte("a: " + name + "\n")}
	}
	all := []Saved{
		{Object: objectOf(clusterRoute, "", "web", "2026-11-23T09:00:00Z"), Accepted: []byte("a: web\n")},
		{Object: objectOf(Route, "ns", "former", "2026-11-23T10:00:00Z"), Accepted: []byte("a: \u00fc\n")},
		{Object: objectOf(Route, "ns", "web", "2026-11-23T10:00:00Z")},
	}
	records, err := Encode(all)
	must.Succeed(t, err)
	got, err := Decode(records)
	if err != nil || !reflect.DeepEqual(got, all) {
		t.Errorf("got %+v, %v", got, err)
	}
	records["route/bad -n ns"] = []byte("{")
	_, err = Decode(records)
	must.Fail(t, err, "the record of route/bad -n ns: unexpected end of JSON input")
}

// TestFormerFile shows that the file of an earlier version is read, and that a damaged one is
// ignored.
func TestFormerFile(t *testing.T) {
	dir, log := t.TempDir(), slog.New(slog.DiscardHandler)
	if got := LoadFormer(dir, log); got != nil {
		t.Errorf("got %+v", got)
	}
	const text = `{"Objects":[{"Kind":"Route","Namespace":"ns","Name":"web","UID":"u","Generation":3,"Text":"YTogYgo="},
		{"Kind":"Route","Namespace":"ns","Name":"other","UID":"v","Generation":1,"Text":"YTogYgo="}],"Accepted":{"ns\u0000route/web -n ns\u0000u":"YTogYwo="}}`
	must.Succeed(t, os.WriteFile(filepath.Join(dir, formerFile), []byte(text), 0o600))
	want := []Saved{
		{&Object{Key: Key{Route, "ns", "web"}, UID: "u", Generation: 3, Text: []byte("a: b\n")}, []byte("a: c\n")},
		{&Object{Key: Key{Route, "ns", "other"}, UID: "v", Generation: 1, Text: []byte("a: b\n")}, nil},
	}
	if got := LoadFormer(dir, log); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v", got)
	}
	must.Succeed(t, os.WriteFile(filepath.Join(dir, formerFile), []byte("{"), 0o600))
	if got := LoadFormer(dir, log); got != nil {
		t.Errorf("got %+v", got)
	}
	must.Succeed(t, RemoveFormer(dir))
	must.Succeed(t, RemoveFormer(dir))
	if _, err := os.Lstat(filepath.Join(dir, formerFile)); !os.IsNotExist(err) {
		t.Error("the file is still there", err)
	}
}
