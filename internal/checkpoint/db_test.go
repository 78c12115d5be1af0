package checkpoint_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/fingerprint"
	"github.com/deltarouter/deltarouter/internal/transit"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/test/must"
)

var seen = time.Date(2026, 11, 20, 9, 0, 0, 123, time.UTC)

func TestCut(t *testing.T) {
	pods := resource("", "pods")
	a1, a2, b1 := object(t, pods, "a", "u1", "1", "x"), object(t, pods, "a", "u2", "3", strings.Repeat("y", 500)), object(t, pods, "b", "u3", "2", "")
	a1b := object(t, pods, "a", "u1", "2", "later")
	put := func(objects ...*event.Object) checkpoint.Cut {
		return checkpoint.Cut{Watches: []checkpoint.WatchCut{{ID: "w", Applied: "9", Put: objects}}}
	}
	gone := func(ids ...checkpoint.Identity) checkpoint.Cut {
		return checkpoint.Cut{Watches: []checkpoint.WatchCut{{ID: "w", Applied: "9", Deleted: ids}}}
	}
	owe := func(ids ...uint64) checkpoint.Cut {
		c := checkpoint.RouteCut{Name: "r"}
		for _, id := range ids {
			c.Put = append(c.Put, checkpoint.Pending{ID: id, Delta: &event.Delta{Source: "s", Op: event.Added, New: b1}})
		}
		return checkpoint.Cut{Routes: []checkpoint.RouteCut{c}}
	}
	tests := []struct {
		name  string
		write []any // a Cut or intents
		want  string
	}{
		{"nothing", nil, "cluster \n"},
		{"cluster", []any{checkpoint.Cut{Cluster: "c1"}, checkpoint.Cut{}}, "cluster c1\n"},
		{"clusters of watches", []any{
			checkpoint.Cut{Cluster: "c1", Watches: []checkpoint.WatchCut{{ID: "v", Applied: "7"}, {ID: "w", Applied: "7"}}},
			checkpoint.Cut{Watches: []checkpoint.WatchCut{{ID: "w", Applied: "8", Cluster: "c2"}}},
			checkpoint.Cut{Watches: []checkpoint.WatchCut{{ID: "w", Applied: "9", Reset: true}}},
		}, "cluster c1\nwatch w fed 9 relisting false\n  of cluster c2\n"},
		{"fed", []any{checkpoint.Cut{Watches: []checkpoint.WatchCut{{ID: "w", Applied: "7", Relisting: true}}}}, "cluster \nwatch w fed 7 relisting true\n"},
		{"put", []any{put(a1, b1)}, "cluster \nwatch w fed 9 relisting false\n  " + string(a1.JSON()) + " bare false\n  " + string(b1.JSON()) + " bare false\n"},
		{"put again", []any{put(a1), put(a2)}, "cluster \nwatch w fed 9 relisting false\n  " + string(a2.JSON()) + " bare false\n"},
		{"deleted", []any{put(a1), gone(identity("a", "u1"))}, "cluster \nwatch w fed 9 relisting false\n"},
		{"deleted and made again in one cut", []any{put(a1), checkpoint.Cut{Watches: []checkpoint.WatchCut{{
			ID: "w", Applied: "9", Deleted: []checkpoint.Identity{identity("a", "u1")}, Put: []*event.Object{a2},
		}}}}, "cluster \nwatch w fed 9 relisting false\n  " + string(a2.JSON()) + " bare false\n"},
		{
			"bare",
			[]any{checkpoint.Cut{Watches: []checkpoint.WatchCut{{ID: "w", BareOnly: true, Put: []*event.Object{a2}}}}},
			"cluster \nwatch w fed  relisting false\n" +
				`  {"apiVersion":"v1","kind":"Thing","metadata":{"name":"a","namespace":"ns","uid":"u2","resourceVersion":"3"}} bare true` + "\n",
		},
		{
			"reset",
			[]any{put(a1), []*event.Object{intent("x", "ux")}, checkpoint.Cut{Watches: []checkpoint.WatchCut{{ID: "w", Applied: "9", Reset: true, Put: []*event.Object{b1}}}}},
			"cluster \nwatch w fed 9 relisting false\n  " + string(b1.JSON()) + " bare false\n",
		},
		{
			"intents",
			[]any{[]*event.Object{intent("a", "u1"), intent("b", "u3"), intent("a", "u1")}},
			"cluster \nwatch w fed  relisting false\n  intent ns/a u1\n  intent ns/b u3\n",
		},
		{
			"an object supersedes its intent, of its uid only",
			[]any{[]*event.Object{intent("a", "u1"), intent("a", "u2")}, put(a2)},
			"cluster \nwatch w fed 9 relisting false\n  " + string(a2.JSON()) + " bare false\n  intent ns/a u1\n",
		},
		{
			"a delete ends its intent, of its uid only",
			[]any{[]*event.Object{intent("a", "u1"), intent("a", "u2")}, gone(identity("a", "u1"))},
			"cluster \nwatch w fed 9 relisting false\n  intent ns/a u2\n",
		},
		{
			"a delete without a uid ends none",
			[]any{[]*event.Object{intent("a", "u1")}, put(a2), gone(identity("a", ""))},
			"cluster \nwatch w fed 9 relisting false\n  intent ns/a u1\n",
		},
		{"an object without a uid", []any{[]*event.Object{intent("a", "")}}, "cluster \nwatch w fed  relisting false\n  intent ns/a\n"},
		{
			"the state of an intent is that of the last one, of Secrets none",
			[]any{[]*event.Object{a1, b1, object(t, resource("", "secrets"), "s", "u4", "5", "data")}, []*event.Object{a1b}},
			"cluster \nwatch w fed  relisting false\n  intent ns/a u1 " + string(a1b.JSON()) + "\n  intent ns/b u3 " + string(b1.JSON()) + "\n  intent ns/s u4\n",
		},
		{
			"owed, in order",
			[]any{owe(300, 2), owe(1), checkpoint.Cut{Routes: []checkpoint.RouteCut{{Name: "r", Removed: []uint64{2, 77}}}}},
			"cluster \n" + owes(1, b1) + owes(300, b1),
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			path := statePath(t)
			db := open(t, path)
			for range 2 { // a cut that is written twice has the effect of one
				for _, w := range test.write {
					var err error
					switch w := w.(type) {
					case checkpoint.Cut:
						err = db.Write(w)
						if err == nil && test.name != "reset" && test.name != "a route's reset" {
							err = db.Write(w)
						}
					case []*event.Object:
						err = db.WriteIntents(map[string][]*event.Object{"w": w})
					}
					must.Succeed(t, err)
				}
				if got := dump(t, db, []string{"w", "other"}, []string{"r", "other"}); got != test.want {
					t.Errorf("got\n%swant\n%s", got, test.want)
				}
				db = reopen(t, db, path)
				if got := dump(t, db, []string{"w"}, []string{"r"}); got != test.want {
					t.Errorf("after opening again got\n%swant\n%s", got, test.want)
				}
				test.write = nil
			}
		})
	}
}

func owes(id uint64, o *event.Object) string {
	return describe("r", checkpoint.Pending{ID: id, Delta: &event.Delta{Source: "s", Op: event.Added, New: o}})
}

// fedEvent returns an event that an upstream route made of a delta.
func fedEvent(data string) *event.Event {
	return &event.Event{
		ID: "id", Type: "mine", Source: "/clusters/prod/sources/s", Subject: "ns/a", Time: seen, Data: []byte(data), Route: "first", K8sUID: "u",
		K8sResourceVersion: "2", Redelivered: true,
	}
}

// The backlog of a route is read completely, with the resource of its source or, if the source no
// longer exists, the saved one.
func TestPending(t *testing.T) {
	things := resource("example.com", "things")
	a, b := object(t, things, "a", "u", "1", strings.Repeat("old", 300)), object(t, things, "a", "u", "2", strings.Repeat("new", 300))
	deltas := []*event.Delta{
		{Source: "s", Op: event.Added, New: a, Initial: true},
		{Source: "s", Op: event.Updated, Old: a, New: b, Seen: seen, Redelivered: true},
		{Source: "s", Op: event.Deleted, Old: b, Stale: true, Seen: seen},
		{Source: "gone", Op: event.Deselected, Old: b, Seen: time.Unix(0, -5)},
		{Source: "s", Op: event.Sync, New: b},
		{Source: "s", Op: event.Updated, Old: a, New: b, Seen: seen, Suppressed: 2, Event: fedEvent(`{"x":["y"]}`)},
		{Source: "s", Op: event.Deleted, Old: b, Event: &event.Event{}},
	}
	transit.Of(deltas[4]).Durable = make(chan struct{})
	path := statePath(t)
	db := open(t, path)
	var want strings.Builder
	c := checkpoint.RouteCut{Name: "r"}
	for i, d := range deltas {
		owed := checkpoint.Pending{ID: uint64(i), Delta: d, Closed: []string{"out", "höök"}[:i%3], Attempts: i}
		c.Put = append(c.Put, owed)
		want.WriteString(describe("r", owed))
	}
	write(t, db, checkpoint.Cut{Routes: []checkpoint.RouteCut{c}})
	db = reopen(t, db, path)
	shared := resource("example.com", "things")
	all, err := db.LoadRoute("r", checkpoint.Part{}, func(source string) *event.Resource {
		if source == "s" {
			return shared
		}
		return nil
	})
	must.Succeed(t, err)
	var got strings.Builder
	for _, o := range all {
		got.WriteString(describe("r", o))
		if r := o.Delta.Object().Resource(); (o.Delta.Source == "s") != (r == shared) || *r != *things || transit.Of(o.Delta).Durable != nil {
			t.Errorf("%d: resource %v, durable %v", o.ID, r, transit.Of(o.Delta).Durable)
		}
	}
	if got.String() != want.String() {
		t.Errorf("got\n%swant\n%s", &got, &want)
	}
}

// The data of a Secret does not reach the disk in any record.
func TestSecretsStayOut(t *testing.T) {
	// Guarantee: secrets-off-disk
	const canary = "c4n4ry-in-the-c0al-mine"
	path := statePath(t)
	db := open(t, path)
	checkpoint.SetKey(db, fingerprint.NewKey([]byte("key")))
	secrets, others := resource("", "secrets"), resource("example.com", "secrets")
	s1, s2 := object(t, secrets, "a", "u", "1", canary), object(t, secrets, "a", "u", "2", canary)
	write(t, db, checkpoint.Cut{
		Watches: []checkpoint.WatchCut{{ID: "w", Put: []*event.Object{s1}}, {ID: "bare", BareOnly: true, Put: []*event.Object{object(t, others, "b", "v", "1", canary)}}},
		Routes: []checkpoint.RouteCut{{Name: "r", Put: []checkpoint.Pending{
			{ID: 1, Delta: &event.Delta{Op: event.Updated, Source: "s", Old: s1, New: s2}},
			{ID: 2, Delta: &event.Delta{Op: event.Deleted, Source: "s", Old: s2}},
			{ID: 3, Delta: &event.Delta{Op: event.Added, Source: "s", New: s2, Event: &event.Event{
				ID: "fed", Type: canary, Subject: canary, Data: []byte(`{"x":"` + canary + `"}`),
			}}},
		}}},
	})
	got := dump(t, db, []string{"w", "bare"}, []string{"r"})
	if strings.Contains(got, canary) || strings.Count(got, `"uid":"u"`) != 5 || strings.Count(got, `"name":"a"`) != 5 {
		t.Error(got)
	}
	if !strings.Contains(got, "ID:fed Type:io.deltarouter.added ") || !strings.Contains(got, " Subject:ns/a ") {
		t.Error(got)
	}
	must.Succeed(t, db.Close())
	entries, err := os.ReadDir(filepath.Dir(path))
	must.Succeed(t, err)
	for _, e := range entries {
		if text, err := os.ReadFile(filepath.Join(filepath.Dir(path), e.Name())); err != nil || strings.Contains(string(text), canary) {
			t.Errorf("%s: the canary is in it, or %v", e.Name(), err)
		}
	}
	// Proof that the test works: an object of another group is written, here short enough not to be
	// compressed.
	db = open(t, path)
	o, err := event.ParseObject(others, `{"metadata":{"name":"c"},"x":"`+canary+`"}`)
	must.Succeed(t, err)
	write(t, db, checkpoint.Cut{Watches: []checkpoint.WatchCut{{ID: "w", Put: []*event.Object{o}}}})
	if text, err := os.ReadFile(path); err != nil || !strings.Contains(string(text), canary) {
		t.Error("the canary of another group is not found", err)
	}
}

func TestModes(t *testing.T) {
	path := statePath(t)
	db := open(t, path)
	for name, want := range map[string]os.FileMode{filepath.Dir(path): 0o700 | os.ModeDir, path: 0o600, path + ".lock": 0o600} {
		if info, err := os.Stat(name); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
	must.Succeed(t, os.Chmod(path, 0o644))
	reopen(t, db, path)
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("after opening again: %v, %v", info.Mode(), err)
	}
}

func TestClosed(t *testing.T) {
	db := open(t, statePath(t))
	must.Succeed(t, errors.Join(db.Close(), db.Close()))
	if err := db.Write(checkpoint.Cut{Cluster: "c"}); !errors.Is(err, checkpoint.ErrClosed) {
		t.Error(err)
	}
	if _, err := db.LoadWatch("w"); !errors.Is(err, checkpoint.ErrClosed) {
		t.Error(err)
	}
}

// Names that bbolt does not accept as keys work, and an invalid cut is an error without an effect.
func TestOutlandish(t *testing.T) {
	path := statePath(t)
	db := open(t, path)
	long := strings.Repeat("n", 40_000)
	write(t, db, checkpoint.Cut{
		Watches: []checkpoint.WatchCut{{ID: long, Put: []*event.Object{object(t, resource("", "pods"), long, long, "1", "")}}},
		Routes:  []checkpoint.RouteCut{{Name: long}},
	})
	must.Succeed(t, db.WriteIntents(map[string][]*event.Object{long: {intent(long, "u")}}))
	db = reopen(t, db, path)
	if w, err := db.LoadWatch(long); err != nil || len(w.Objects) != 1 || len(w.Intents) != 1 || w.Intents[0].Identity != identity(long, "u") {
		t.Error(err)
	}
	before := dump(t, db, []string{long, "w"}, nil)
	for _, cut := range []checkpoint.Cut{
		{Cluster: "x", Watches: []checkpoint.WatchCut{{ID: "w"}, {}}},
		{Cluster: "x", Routes: []checkpoint.RouteCut{{}}},
		{Cluster: "x", Routes: []checkpoint.RouteCut{{Name: "r", Put: []checkpoint.Pending{{ID: 1}}}}},
		{Cluster: "x", Routes: []checkpoint.RouteCut{{Name: "r", Put: []checkpoint.Pending{{ID: 1, Delta: &event.Delta{}}}}}},
	} {
		if err := db.Write(cut); err == nil {
			t.Errorf("%+v was written", cut)
		}
	}
	if got := dump(t, db, []string{long, "w"}, nil); got != before {
		t.Error("a cut that failed left something")
	}
}

// TestReadWatch: concurrent reading passes each written object once.
func TestReadWatch(t *testing.T) {
	db := open(t, statePath(t))
	want := make(map[string]int)
	var put []*event.Object
	for i := range 1000 {
		o := object(t, resource("", "pods"), fmt.Sprintf("p%d", i), fmt.Sprintf("u%d", i), "1", strings.Repeat("x", i))
		put = append(put, o)
		want[string(o.JSON())]++
	}
	write(t, db, checkpoint.Cut{Watches: []checkpoint.WatchCut{{ID: "w", Applied: "9", Put: put}}})
	var mu sync.Mutex
	got := make(map[string]int)
	w, err := db.ReadWatch("w", func(o checkpoint.Object) {
		mu.Lock()
		defer mu.Unlock()
		got[o.JSON]++
	})
	if err != nil || w.Applied != "9" || len(w.Objects) > 0 || !maps.Equal(got, want) {
		t.Errorf("%d objects, want %d; %+v, %v", len(got), len(want), w, err)
	}
}

// TestIntentsInOrder: intents are read in the order in which they were written, whatever their
// uids.
func TestIntentsInOrder(t *testing.T) {
	path := statePath(t)
	db := open(t, path)
	var want []checkpoint.Intent
	for _, uids := range []string{"gb", "e", "fca"} {
		var objects []*event.Object
		for _, uid := range uids {
			objects = append(objects, intent("one", string(uid)))
			want = append(want, checkpoint.Intent{Identity: identity("one", string(uid))})
		}
		must.Succeed(t, db.WriteIntents(map[string][]*event.Object{"w": objects}))
		db = reopen(t, db, path)
	}
	write(t, db, checkpoint.Cut{Watches: []checkpoint.WatchCut{{ID: "w", Deleted: []checkpoint.Identity{want[1].Identity}}}})
	want = append(want[:1], want[2:]...)
	if w, err := db.LoadWatch("w"); err != nil || !slices.Equal(w.Intents, want) {
		t.Errorf("got %v, %v, want %v", w.Intents, err, want)
	}
}

// An intent with a later state than that in a cut stays: it was delivered before a crash, and has
// not arrived again yet.
func TestLaterIntentStays(t *testing.T) {
	db := open(t, statePath(t))
	pods := resource("", "pods")
	states := make(map[string]*event.Object)
	for _, version := range []string{"1", "2", "3"} {
		states[version] = object(t, pods, "a", "u", version, "x")
	}
	must.Succeed(t, db.WriteIntents(map[string][]*event.Object{"w": {states["2"]}}))
	for _, test := range []struct {
		put  string
		want int
	}{{"1", 1}, {"3", 0}} {
		write(t, db, checkpoint.Cut{Watches: []checkpoint.WatchCut{{ID: "w", Put: []*event.Object{states[test.put]}}}})
		if w, err := db.LoadWatch("w"); err != nil || len(w.Intents) != test.want {
			t.Errorf("after %s: %v, %v", test.put, w.Intents, err)
		}
	}
}
