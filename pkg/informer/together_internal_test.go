package informer

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/tools/cache"

	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/test/must"
)

func podAt(t *testing.T, name, uid, version, phase string) *event.Object {
	t.Helper()
	o, err := event.ParseObject(podResource(), fmt.Sprintf(
		`{"metadata":{"name":%q,"uid":%q,"resourceVersion":%q},"status":{"phase":%q}}`, name, uid, version, phase))
	must.Succeed(t, err)
	return o
}

// record is a Downstream with the deltas of several runs.
type record []string

// Admit implements Downstream.
func (r *record) Admit(_ context.Context, d *event.Delta) (event.Admission, error) {
	return event.CommitFunc(func() {
		if !d.Initial {
			*r = append(*r, fmt.Sprintf("%s %s@%s", d.Op, d.Key().Name, d.Object().ResourceVersion()))
		}
	}), nil
}

// tell passes events as "deleted a@5", of which the uid of a is a, and bookmarks as "bookmark @5".
func tell(t *testing.T, s cache.ReflectorStore, events ...string) {
	t.Helper()
	for _, e := range events {
		op, rest, _ := strings.Cut(e, " ")
		name, version, _ := strings.Cut(rest, "@")
		switch op {
		case "bookmark":
			must.Succeed(t, s.(cache.ReflectorBookmarkStore).Bookmark(version))
		case "deleted":
			must.Succeed(t, s.Delete(podAt(t, name, name, version, "")))
		default:
			must.Succeed(t, s.Update(podAt(t, name, name, version, "")))
		}
	}
}

// after returns the events that a server sends to a watch from a version.
func after(from string, events []string) []string {
	return slices.DeleteFunc(slices.Clone(events), func(e string) bool {
		_, version, _ := strings.Cut(e, "@")
		return number(version) <= number(from)
	})
}

func newWatch(down Downstream) (*Watch, mapStore) {
	f := New(Config{
		Metrics: metrics.New(), Log: slog.New(slog.DiscardHandler), Downstream: down, Cluster: "test",
		Gate: func(string, *event.Object) <-chan struct{} { return nil },
	})
	store := mapStore{}
	return f.Watch(*podSpec(), store, Source{Name: "pods"}), store
}

// Events of one transaction have one resourceVersion. A connection that is cut between two of them,
// and a process that is stopped there, lose none and repeat none.
func TestEventsOfOneVersion(t *testing.T) {
	// Guarantee: at-least-once
	for _, events := range [][]string{
		{"deleted a@5", "deleted b@5", "deleted c@5"},
		{"updated a@5", "updated b@5", "updated c@5"},
		{"added d@5", "added e@5", "added f@5"},
		{"updated a@5", "deleted b@5", "added d@5", "updated d@6", "deleted a@7", "deleted c@7", "deleted d@7"},
		{"added d@5", "deleted a@5", "added e@6", "deleted d@6", "updated b@6", "added f@9"},
	} {
		for place := range len(events) + 1 {
			for _, bookmark := range []bool{false, true} {
				for _, killed := range []bool{false, true} {
					t.Run(fmt.Sprint(events, place, bookmark, killed), func(t *testing.T) {
						var deltas record
						w, store := newWatch(&deltas)
						s := w.applier.Store(t.Context())
						must.Succeed(t, s.Replace([]any{podAt(t, "a", "a", "1", ""), podAt(t, "b", "b", "2", ""), podAt(t, "c", "c", "3", "")}, "4"))
						tell(t, s, events[:place]...)
						if _, version, _ := strings.Cut(events[max(place-1, 0)], "@"); bookmark && place > 0 {
							tell(t, s, "bookmark @"+version) // the API server's timer fires between two events
						}
						if c := w.Dirty(); killed {
							w, store = newWatch(&deltas)
							w.Restore(Restored{Applied: c.Applied, Reached: c.Reached, Listed: true, Objects: c.Put})
							s = w.applier.Store(t.Context())
						}
						tell(t, s, after(w.state.Position.From(), events)...)
						if !slices.Equal(deltas, events) {
							t.Errorf("deltas %v", deltas)
						}
						want := map[string]string{"a": "1", "b": "2", "c": "3"}
						for _, e := range events {
							op, rest, _ := strings.Cut(e, " ")
							name, version, _ := strings.Cut(rest, "@")
							if want[name] = version; op == "deleted" {
								delete(want, name)
							}
						}
						got := map[string]string{}
						for o := range store.All() {
							got[o.Key().Name] = o.ResourceVersion()
						}
						if !maps.Equal(got, want) {
							t.Errorf("cache %v, want %v", got, want)
						}
					})
				}
			}
		}
	}
}

// The position moves behind a version only when no more events of it can come.
func TestPositionOfOneVersion(t *testing.T) {
	for _, tt := range []struct{ events, from, reached string }{
		{"", "4", "4"},
		{"deleted a@5", "4", "5"},
		{"deleted a@5,deleted b@5", "4", "5"},
		{"deleted a@5,deleted b@6", "5", "6"},
		{"deleted a@5,bookmark @7", "5", "7"},
		{"deleted a@5,bookmark @7,bookmark @7", "7", "7"},
		{"bookmark @5,deleted a@5", "4", "5"},
		{"bookmark @5,deleted a@5,bookmark @5", "4", "5"},
		{"bookmark @5,bookmark @6,deleted a@6", "5", "6"},
		{"deleted a@5,bookmark @5", "4", "5"},
		{"deleted a@5,bookmark @5,bookmark @5", "5", "5"},
		{"deleted a@5,bookmark @5,deleted b@5,bookmark @5", "4", "5"},
		{"bookmark @3", "4", "4"},
		{"added x@3", "4", "4"},
		{"updated a@v1,updated b@v2", "v1", "v2"}, // versions without an order
	} {
		w, _ := newWatch(new(record))
		s := w.applier.Store(t.Context())
		must.Succeed(t, s.Replace([]any{podAt(t, "a", "a", "1", ""), podAt(t, "b", "b", "2", "")}, "4"))
		if tt.events != "" {
			tell(t, s, strings.Split(tt.events, ",")...)
		}
		if from, reached := w.state.Position.From(), w.Applied(); from != tt.from || reached != tt.reached {
			t.Errorf("%s: from %s, reached %s; want %s, %s", tt.events, from, reached, tt.from, tt.reached)
		}
	}
}

// A resumed watch receives the events of the last saved version again. The end of an object that
// was saved as gone is not told once more for the intent of its last state.
func TestRepeatedEnd(t *testing.T) {
	for reached, want := range map[string]string{"": "deleted a@5", "5": "", "6": ""} {
		var deltas record
		w, _ := newWatch(&deltas)
		w.Restore(Restored{Applied: "4", Reached: reached, Intents: []*event.Object{podAt(t, "a", "a", "4", "")}})
		w.state.SetResumeTarget("9")
		w.plan.Resumed()
		s := w.applier.Store(t.Context())
		must.Succeed(t, s.Replace(nil, "4"))
		tell(t, s, "deleted a@5")
		if got := strings.Join(deltas, ","); got != want {
			t.Errorf("saved at %q: %q, want %q", reached, got, want)
		}
	}
}

// Servers that stand in for others send events that are older than the position. The state of their
// object decides.
func TestOlderEvents(t *testing.T) {
	for _, tt := range []struct{ events, want string }{
		{"updated a@9,updated b@7", "updated a@9,updated b@7"},
		{"updated a@9,added x@2", "updated a@9,added x@2"},
		{"updated a@9,deleted b@7", "updated a@9,deleted b@7"},
		{"updated a@9,deleted b@2", "updated a@9,deleted b@2"}, // its last state
		{"updated a@9,updated a@8,deleted a@8", "updated a@9"},
		{"deleted a@9,updated a@8,added a@9,deleted a@9", "deleted a@9"},
		{"deleted never-seen@9", ""},
	} {
		var deltas record
		w, _ := newWatch(&deltas)
		s := w.applier.Store(t.Context())
		must.Succeed(t, s.Replace([]any{podAt(t, "a", "a", "1", ""), podAt(t, "b", "b", "2", "")}, "4"))
		tell(t, s, strings.Split(tt.events, ",")...)
		if got := strings.Join(deltas, ","); got != tt.want {
			t.Errorf("%s: %s", tt.events, got)
		}
	}
	var deltas record
	w, _ := newWatch(&deltas)
	s := w.applier.Store(t.Context())
	must.Succeed(t, s.Replace([]any{podAt(t, "a", "new", "6", "")}, "7"))
	must.Succeed(t, s.Delete(podAt(t, "a", "old", "6", "")))
	must.Succeed(t, s.Update(podAt(t, "a", "old", "5", "")))
	if len(deltas) > 0 {
		t.Errorf("events of a former object: %v", deltas)
	}
}

// Objects without resourceVersions are updated by a list only if their contents differ.
func TestListedWithoutVersions(t *testing.T) {
	var deltas record
	w, _ := newWatch(&deltas)
	s := w.applier.Store(t.Context())
	for _, phase := range []string{"Running", "Running", "Failed", "Failed"} {
		must.Succeed(t, s.Replace([]any{podAt(t, "a", "", "", phase)}, ""))
	}
	if len(deltas) != 1 {
		t.Errorf("deltas %v", deltas)
	}
}
