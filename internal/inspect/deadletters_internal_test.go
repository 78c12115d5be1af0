package inspect

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltarouter/deltarouter/internal/api"
	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/internal/pipeline"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/index"
	"github.com/deltarouter/deltarouter/test/must"
)

// taker is a sink that accepts everything.
type taker struct {
	mu     sync.Mutex
	events []string
}

func (s *taker) Write(_ context.Context, events []event.Event) []error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range events {
		s.events = append(s.events, fmt.Sprintf("%s %s@%s %v", e.Type, e.Subject, e.K8sResourceVersion, e.Redelivered))
	}
	return nil
}

func (s *taker) Close(context.Context) error { return nil }

func thing(t *testing.T, resource, name, uid, version string) *event.Object {
	t.Helper()
	r := &event.Resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: resource}, Cluster: "test"}
	o, err := event.ParseObject(r, fmt.Sprintf(`{"metadata":{"namespace":"ns","name":%q,"uid":%q,"resourceVersion":%q},"data":"d"}`, name, uid, version))
	must.Succeed(t, err)
	return o
}

// newDesk has a pipeline with the route web, whose id is r, and a cache with the given objects of
// source s. synced is the state of the source.
func newDesk(t *testing.T, synced bool, cached ...*event.Object) (*DeadLetters, *taker) {
	t.Helper()
	db, err := checkpoint.Open(checkpoint.Config{Path: filepath.Join(t.TempDir(), "state.db")})
	must.Succeed(t, err)
	t.Cleanup(func() { must.Report(t, db.Close()) })
	letters, err := db.Letters(checkpoint.LettersConfig{})
	must.Succeed(t, err)
	store := index.NewStore()
	for _, o := range cached {
		store.Put(o)
	}
	catalog := index.NewCatalog()
	catalog.Add("s", []*index.Store{store}, nil)
	objects := &Current{}
	objects.Store(&Inventory{config: &config.Config{Routes: []*config.Route{{Name: "web", ID: "r"}}}, catalog: catalog})
	sink := &taker{}
	p, err := pipeline.New(pipeline.Config{DeadLetters: letters, Routes: []spec.Settings{
		{Name: "web", ID: "r", Sources: []string{"s"}, Ops: event.Ops(), Sinks: []spec.NamedSink{{Name: "out", Sink: sink}}},
	}})
	must.Succeed(t, err)
	p.Start(t.Context())
	t.Cleanup(func() { must.Report(t, p.Close(context.WithoutCancel(t.Context()))) })
	d := NewDeadLetters(objects, metrics.New(), slog.New(slog.DiscardHandler))
	d.Use(letters, p, func(source string) bool { return source == "s" && synced })
	return d, sink
}

// drained stops the pipeline and returns the sorted deliveries of the sink.
func drained(t *testing.T, d *DeadLetters, sink *taker) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	must.Report(t, d.pipeline.Drain(ctx))
	if err := d.pipeline.Close(ctx); err != nil { // letters are removed after the ack
		t.Error(err)
	}
	slices.Sort(sink.events)
	return sink.events
}

func sixLetters(t *testing.T) []checkpoint.Letter {
	t.Helper()
	letter := func(route, source string, op event.Op, o *event.Object) checkpoint.Letter {
		d := &event.Delta{Source: source, Op: op, New: o}
		if op == event.Deleted {
			d.Old, d.New = o, nil
		}
		return checkpoint.Letter{Time: time.Now(), Route: route, Error: "no", Delta: d}
	}
	return []checkpoint.Letter{
		letter("r", "s", event.Added, thing(t, "pods", "there", "u1", "1")),
		letter("r", "s", event.Added, thing(t, "pods", "gone", "u2", "1")),
		letter("r", "s", event.Deleted, thing(t, "pods", "deleted", "u3", "1")),
		letter("r", "s", event.Added, thing(t, "pods", "again", "u4", "1")),
		letter("r", "s", event.Added, thing(t, "secrets", "secret", "u5", "1")),
		letter("former", "s", event.Added, thing(t, "pods", "there", "u1", "1")),
	}
}

func TestLetterDesk(t *testing.T) {
	cached := []*event.Object{
		thing(t, "pods", "there", "u1", "7"), thing(t, "pods", "again", "other", "8"), thing(t, "secrets", "secret", "u5", "9"),
	}
	for name, c := range map[string]struct {
		unsynced bool
		which    api.Selection
		Current  bool
		want     []string
		outcome  string // done, gone, not done
		left     []uint64
	}{
		"as they were": {
			which:   api.Selection{IDs: []uint64{3, 1, 1, 99}},
			want:    []string{"io.deltarouter.added ns/there@1 true", "io.deltarouter.deleted ns/deleted@1 true"},
			outcome: "2 0 1", left: []uint64{2, 4, 5, 6},
		},
		"as they are": {
			which: api.Selection{Route: "web"}, Current: true,
			want: []string{
				"io.deltarouter.deleted ns/deleted@1 true", "io.deltarouter.updated ns/secret@9 true", "io.deltarouter.updated ns/there@7 true",
			},
			outcome: "3 2 0", left: []uint64{6},
		},
		"of a secret there is only the identity": {
			which: api.Selection{IDs: []uint64{5}}, want: []string{"io.deltarouter.updated ns/secret@9 true"}, outcome: "1 0 0", left: []uint64{1, 2, 3, 4, 6},
		},
		"before the cache is full": {
			unsynced: true, which: api.Selection{Route: "web"}, Current: true, outcome: "0 0 5", left: []uint64{1, 2, 3, 4, 5, 6},
		},
		"of a route that is gone": {which: api.Selection{Route: "former"}, outcome: "0 0 1", left: []uint64{1, 2, 3, 4, 5, 6}},
	} {
		t.Run(name, func(t *testing.T) {
			d, sink := newDesk(t, !c.unsynced, cached...)
			must.Succeed(t, d.store.Add(t.Context(), sixLetters(t)))
			o, err := d.Retry(t.Context(), c.which, c.Current)
			if got := fmt.Sprint(o.Done, o.Gone, o.NotDone); err != nil || got != c.outcome {
				t.Errorf("got %s, want %s: %v, %v", got, c.outcome, o.Failed, err)
			}
			if got := drained(t, d, sink); !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if left := d.store.IDs("", 0, 0); !slices.Equal(left, c.left) {
				t.Errorf("%v are left, want %v", left, c.left)
			}
		})
	}
}

func TestLetterDeskShowsAndDrops(t *testing.T) {
	d, _ := newDesk(t, true)
	must.Succeed(t, d.store.Add(t.Context(), sixLetters(t)))
	list, err := d.Letters(t.Context(), "web", 1, 2)
	if err != nil || len(list) != 2 || list[0].ID != 2 || list[0].Delta.Object != nil || list[1].Delta.Key != "ns/deleted" || list[0].Route != "web" {
		t.Errorf("got %+v, %v", list, err)
	}
	one, err := d.Letter(t.Context(), 1)
	if err != nil || string(one.Delta.Object) != string(thing(t, "pods", "there", "u1", "1").JSON()) || one.Delta.UID != "u1" {
		t.Errorf("got %+v, %v", one, err)
	}
	if one, err = d.Letter(t.Context(), 99); one != nil || err != nil {
		t.Errorf("got %+v, %v", one, err)
	}
	o, err := d.Drop(t.Context(), api.Selection{IDs: []uint64{1, 6, 99}})
	if err != nil || o.Done != 2 || o.NotDone != 1 || o.Failed[0].ID != 99 {
		t.Errorf("got %+v, %v", o, err)
	}
	if o, err = d.Drop(t.Context(), api.Selection{Route: "web"}); err != nil || o.Done != 4 || o.NotDone != 0 {
		t.Errorf("got %+v, %v", o, err)
	}
}

// TestLetterDeskOfAnEvent shows that a dead letter contains the event of an upstream route, and
// that a retry delivers this event whatever the present state of its object.
func TestLetterDeskOfAnEvent(t *testing.T) {
	for _, current := range []bool{false, true} {
		d, sink := newDesk(t, true, thing(t, "pods", "there", "u1", "7"), thing(t, "secrets", "secret", "u5", "9"))
		letters := sixLetters(t)
		// Events made of a Secret are not kept.
		letters = []checkpoint.Letter{letters[0], letters[4]}
		for i := range letters {
			letters[i].Delta.Event = &event.Event{ID: "i", Type: "made", Subject: letters[i].Delta.Key().String(), Route: "first", Data: []byte(`{"a":1}`)}
		}
		must.Succeed(t, d.store.Add(t.Context(), letters))
		one, err := d.Letter(t.Context(), 1)
		if err != nil || one.Delta.Event == nil || one.Delta.Event.Type != "made" || one.Delta.Event.Route != "first" || string(one.Delta.Event.Data) != `{"a":1}` {
			t.Errorf("got %+v, %v", one, err)
		}
		list, err := d.Letters(t.Context(), "web", 0, 9)
		if err != nil || len(list) != 2 || list[0].Delta.Event == nil || list[0].Delta.Event.Type != "made" || list[0].Delta.Event.Data != nil {
			t.Errorf("got %+v, %v", list, err)
		}
		if o, err := d.Retry(t.Context(), api.Selection{Route: "web"}, current); err != nil || o.Done != 2 {
			t.Errorf("got %+v, %v", o, err)
		}
		there := map[bool]string{false: "made ns/there@1 true", true: "made ns/there@7 true"}[current]
		if got, want := drained(t, d, sink), []string{"io.deltarouter.added ns/secret@9 true", there}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
