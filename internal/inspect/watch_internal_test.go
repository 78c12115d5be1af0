package inspect

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltarouter/deltarouter/internal/api"
	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/index"
	"github.com/deltarouter/deltarouter/pkg/informer"
	"github.com/deltarouter/deltarouter/test/must"
)

// TestWatch shows that a stream has the objects that match, in order, and then each change: an
// object that begins to match is added, and one that no longer matches is deleted.
func TestWatch(t *testing.T) {
	// Guarantee: get-watch
	before := []string{"two/c 1 web", "one/b 2 db", "one/a 1 web", "two/gone 1", "two/gone"}
	after := []string{"one/b 1 db", "one/d 2", "one/a 3 web", "one/a 3", "two/c", "one/d 3", "one/d"}
	for _, c := range []struct {
		name  string
		query api.Query
		end   string // the last change; it concerns the query
		want  string
	}{
		{
			"all",
			api.Query{},
			"two/z 1",
			"ADDED one/a=1, ADDED one/b=2, ADDED two/c=1, LISTED, MODIFIED one/b=1, ADDED one/d=2, MODIFIED one/a=3, MODIFIED one/a=3, " +
				"DELETED two/c=1, MODIFIED one/d=3, DELETED one/d=3, ADDED two/z=1",
		},
		{"namespace", api.Query{Namespace: "two"}, "two/z 1", "ADDED two/c=1, LISTED, DELETED two/c=1, ADDED two/z=1"},
		{"name", api.Query{Name: "d"}, "two/d 1", "LISTED, ADDED one/d=2, MODIFIED one/d=3, DELETED one/d=3, ADDED two/d=1"},
		{
			"labels",
			api.Query{Labels: "app in (web, x)"},
			"two/z 1 x",
			"ADDED one/a=1, ADDED two/c=1, LISTED, MODIFIED one/a=3, DELETED one/a=3, DELETED two/c=1, ADDED two/z=1",
		},
		{
			"filter",
			api.Query{Filter: `object.data.value == "1"`},
			"two/z 1",
			"ADDED one/a=1, ADDED two/c=1, LISTED, ADDED one/b=1, DELETED one/a=1, DELETED two/c=1, ADDED two/z=1",
		},
		{"filter and labels", api.Query{Filter: `object.data.value == "1"`, Labels: "!app"}, "two/z 1", "LISTED, ADDED two/z=1"},
		{
			"a field that is not there",
			api.Query{Filter: `object.metadata.labels.app == "web"`, Namespace: "one"},
			"one/z 1 web",
			"ADDED one/a=1, LISTED, MODIFIED one/a=3, DELETED one/a=3, ADDED one/z=1",
		},
		{
			"index",
			api.Query{Index: "byValue", Value: "3"},
			"two/z 3",
			"LISTED, ADDED one/a=3, MODIFIED one/a=3, ADDED one/d=3, DELETED one/d=3, ADDED two/z=3",
		},
		{
			"index and filter",
			api.Query{Index: "byValue", Value: "1", Filter: `object.metadata.name != "a"`},
			"two/z 1",
			"ADDED two/c=1, LISTED, ADDED one/b=1, DELETED two/c=1, ADDED two/z=1",
		},
		{"built-in index", api.Query{Index: index.ByNamespace, Value: "two"}, "two/z 1", "ADDED two/c=1, LISTED, DELETED two/c=1, ADDED two/z=1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWatched(t)
			w.apply(t, before...)
			c.query.Source = "maps"
			var got []string
			err := w.Watch(t.Context(), c.query, func(e api.WatchEvent) error {
				if got = append(got, line(t, e)); got[len(got)-1] == c.want[strings.LastIndex(c.want, " ADDED")+1:] {
					return errEnough
				}
				if e.Type == api.WatchListed {
					if !e.Synced || e.Reason != "" || e.ResourceVersion == "" {
						t.Errorf("got %+v", e)
					}
					w.apply(t, append(after, c.end)...)
				}
				return nil
			})
			if s := strings.Join(got, ", "); s != c.want || !errors.Is(err, errEnough) {
				t.Errorf("\n got %s, %v\nwant %s", s, err, c.want)
			}
		})
	}
}

// TestWatchOfUnchanged shows that an object that is stored again as it is makes no event.
func TestWatchOfUnchanged(t *testing.T) {
	w := newWatched(t)
	w.apply(t, "one/a 1")
	var got []string
	err := w.Watch(t.Context(), api.Query{Source: "maps"}, func(e api.WatchEvent) error {
		got = append(got, line(t, e))
		if e.Type == api.WatchListed {
			store := w.objects.Load().stores["maps"][0]
			store.Put(parse(t, "configmaps", string(store.Get(event.Key{Namespace: "one", Name: "a"}).JSON())))
			w.apply(t, "one/b 1")
			return nil
		}
		if len(got) > 2 {
			return errEnough
		}
		return nil
	})
	if s := strings.Join(got, ", "); s != "ADDED one/a=1, LISTED, ADDED one/b=1" || !errors.Is(err, errEnough) {
		t.Errorf("got %s, %v", s, err)
	}
}

// TestWatchMissesNothing shows that streams that begin while objects change have each object once,
// and each change exactly once.
func TestWatchMissesNothing(t *testing.T) {
	// Guarantee: get-watch
	w := newWatched(t)
	var readers sync.WaitGroup
	for range maxStreams {
		readers.Go(func() {
			for !w.follow(t) {
				continue
			}
		})
	}
	for i := range 1200 { // fewer changes than a backlog has room for, also if a reader stalls
		w.apply(t, fmt.Sprintf("one/%d %d", i%7, i), fmt.Sprintf("two/counter %d", i))
		if i%3 == 0 {
			w.apply(t, fmt.Sprintf("one/%d", i%7))
		}
		runtime.Gosched()
	}
	w.apply(t, "one/end 1")
	readers.Wait()
}

// TestWatchBeginsWithTheList shows that a stream has the changes of one watch that come while it
// waits for another watch to list its objects.
func TestWatchBeginsWithTheList(t *testing.T) {
	w, last := newWatched(t), 500
	w.apply(t, "one/counter 0")
	var both sync.WaitGroup
	both.Go(func() {
		must.Report(t, w.two.Put(t.Context(), `{"metadata":{"name":"held","namespace":"two","uid":"h","resourceVersion":"2"}}`))
	})
	<-w.holder.held
	listed := make(chan struct{})
	both.Go(func() {
		begun := sync.OnceFunc(func() { close(listed) })
		defer begun()
		all := make(copied)
		err := w.Watch(t.Context(), api.Query{Source: "maps"}, func(e api.WatchEvent) error {
			if e.Type == api.WatchListed {
				begun()
				return nil
			}
			o := parse(t, "configmaps", string(e.Object))
			if err := all.take(e.Type, o); err != nil {
				return err
			}
			if valueOf(o) == last {
				return errEnough
			}
			return nil
		})
		if !errors.Is(err, errEnough) {
			t.Error(err)
		}
	})
	for i := range last - 1 {
		w.apply(t, fmt.Sprintf("one/counter %d", i+1))
		runtime.Gosched()
	}
	close(w.holder.release)
	<-listed
	w.apply(t, fmt.Sprintf("one/counter %d", last))
	both.Wait()
}

// TestWatchRedacts shows that a stream shows Secrets as a page does, and that a filter cannot guess
// their values.
func TestWatchRedacts(t *testing.T) {
	// Guarantee: api-no-secrets
	const secret = `{"metadata":{"name":"s","namespace":"one","uid":"u","resourceVersion":"%d","annotations":{"kapp.k14s.io/original":"aHVudGVyMg==","a":"b"}},` +
		`"data":{"token":"aHVudGVyMg=="},"type":"%s"}`
	w := newWatched(t)
	must.Succeed(t, w.secrets.Put(t.Context(), fmt.Sprintf(secret, 2, "first")))
	query := api.Query{Source: "secrets", Limit: 1}
	page := func() string {
		answer, err := w.Query(t.Context(), query)
		if err != nil || len(answer.Items) != 1 || !strings.Contains(string(answer.Items[0]), `"token":"(redacted)"`) {
			t.Fatalf("%+v, %v", answer, err)
		}
		return string(answer.Items[0])
	}
	want, n := page(), 0
	err := w.Watch(t.Context(), query, func(e api.WatchEvent) error {
		n++
		if e.Type == api.WatchListed {
			must.Succeed(t, w.secrets.Put(t.Context(), fmt.Sprintf(secret, 3, "second")))
			want = page()
			must.Succeed(t, w.secrets.Delete(t.Context(), fmt.Sprintf(secret, 4, "second")))
			return nil
		}
		if string(e.Object) != want {
			t.Errorf("%s: got %s, want %s", e.Type, e.Object, want)
		}
		if e.Type == api.WatchDeleted {
			return errEnough
		}
		return nil
	})
	if n != 4 || !errors.Is(err, errEnough) {
		t.Errorf("%d events, %v", n, err)
	}
	must.Succeed(t, w.secrets.Put(t.Context(), fmt.Sprintf(secret, 5, "third")))
	for filter, match := range map[string]bool{
		`object.data.token == "aHVudGVyMg=="`: false, `list("secrets").exists(s, s.data.token == "aHVudGVyMg==")`: false,
		`get("secrets", "one", "s").data.token == object.data.token`: true, `"token" in object.data`: true,
	} {
		n, query := 0, api.Query{Source: "secrets", Filter: filter}
		err := w.Watch(t.Context(), query, func(e api.WatchEvent) error {
			if e.Type == api.WatchListed {
				return errEnough
			}
			n++
			return nil
		})
		if n > 0 != match || !errors.Is(err, errEnough) {
			t.Errorf("%s: %d objects, %v", filter, n, err)
		}
	}
	must.Fail(t, w.Watch(t.Context(), api.Query{Source: "secrets", Index: "byToken", Value: "hunter2"}, nil), "it may contain data of Secrets")
}

// TestWatchCutsOff shows that a stream whose reader is too slow ends, that the changes of the cache
// do not wait for it, and that the stream keeps no object afterwards.
func TestWatchCutsOff(t *testing.T) {
	// Guarantee: get-watch
	long := strings.Repeat("x", streamBytes/8)
	for name, flood := range map[string]func(w *watched){
		"too many changes": func(w *watched) {
			for i := range streamBacklog + 1 {
				w.apply(t, fmt.Sprintf("one/a %d", i))
			}
		},
		"too large changes": func(w *watched) {
			for i := range 10 {
				w.apply(t, fmt.Sprintf("one/a %d%s", i, long))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWatched(t)
			err := w.Watch(t.Context(), api.Query{Source: "maps"}, func(e api.WatchEvent) error {
				if e.Type != api.WatchListed {
					return errEnough
				}
				flood(w)
				return nil
			})
			must.Fail(t, err, "the stream was cut off because more than 4096 changes, or 16 MiB, waited for its reader: select fewer objects")
		})
	}
	w, n := newWatched(t), 0
	err := w.Watch(t.Context(), api.Query{Source: "maps"}, func(api.WatchEvent) error {
		if n++; n > 2*streamBacklog { // a reader that keeps up is not cut off
			return errEnough
		}
		w.apply(t, fmt.Sprintf("one/a %d%s", n, long[:2*streamBytes/streamBacklog]))
		return nil
	})
	if !errors.Is(err, errEnough) {
		t.Error(err)
	}
	object := w.passing(t)
	if runtime.GC(); object.Value() != nil {
		t.Error("a stream that has ended keeps an object")
	}
	runtime.KeepAlive(w)
}

// TestWatchContinues shows that a stream continues if a reload leaves the stores and their indexes
// as they are, and that it still ends with a later reload that does not.
func TestWatchContinues(t *testing.T) {
	w := newWatched(t)
	reload := func(view string) {
		next := *w.objects.Load()
		next.view, next.replaced = view, make(chan struct{})
		w.objects.Store(&next)
	}
	reload("the same")
	var got []string
	err := w.Watch(t.Context(), api.Query{Source: "maps"}, func(e api.WatchEvent) error {
		got = append(got, e.Type)
		switch e.Type {
		case api.WatchListed:
			reload("the same")
			reload("the same")
			w.apply(t, "one/a 1")
		case api.WatchAdded:
			reload("another")
		}
		return nil
	})
	must.Fail(t, err, errReloaded.Error())
	if want := []string{api.WatchListed, api.WatchAdded}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestViewOf shows which changes of a configuration leave the streams as they are.
func TestViewOf(t *testing.T) {
	pods, nodes := informer.Spec{Resource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}}, informer.Spec{Namespace: "ns"}
	stores := map[informer.Spec]*index.Store{pods: index.NewStore(), nodes: index.NewStore()}
	plan := func(source string, specs ...informer.Spec) *compile.Plan {
		return &compile.Plan{Config: &config.Config{}, Sources: map[string]compile.Source{source: {Specs: specs}}}
	}
	indexes := func(name, of string) map[string]map[string]index.Spec {
		return map[string]map[string]index.Spec{"pods": {name: {Name: of}}}
	}
	first := viewOf(plan("pods", pods), stores, indexes("byNode", "1"))
	if viewOf(plan("pods", pods), stores, indexes("byNode", "1")) != first {
		t.Error("the same sources are another view")
	}
	for name, other := range map[string]string{
		"another name":    viewOf(plan("pod", pods), stores, indexes("byNode", "1")),
		"another watch":   viewOf(plan("pods", pods, nodes), stores, indexes("byNode", "1")),
		"another store":   viewOf(plan("pods", pods), map[informer.Spec]*index.Store{pods: stores[nodes]}, indexes("byNode", "1")),
		"a renamed index": viewOf(plan("pods", pods), stores, indexes("byHost", "1")),
		"a changed index": viewOf(plan("pods", pods), stores, indexes("byNode", "2")),
		"a removed index": viewOf(plan("pods", pods), stores, nil),
		"a source less":   viewOf(plan("pods"), stores, nil),
	} {
		if other == first {
			t.Errorf("%s is the same view", name)
		}
	}
}

// TestWatchEnds shows that a stream ends with its context and with a reload, and that the next one
// then has a place.
func TestWatchEnds(t *testing.T) {
	w := newWatched(t)
	query := api.Query{Source: "maps"}
	inv := *w.objects.Load()
	err := w.Watch(t.Context(), query, func(e api.WatchEvent) error {
		if e.Type != api.WatchListed {
			return errEnough
		}
		next := inv
		next.replaced = make(chan struct{})
		w.objects.Store(&next)
		w.apply(t, "one/a 1")
		return nil
	})
	must.Fail(t, err, "the stream ended because the configuration was reloaded: start again")
	ctx, cancel := context.WithCancel(t.Context())
	err = w.Watch(ctx, query, func(api.WatchEvent) error {
		cancel()
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	depth, last := 0, error(nil)
	var open func(api.WatchEvent) error
	open = func(api.WatchEvent) error {
		depth++
		if err := w.Watch(t.Context(), query, open); last == nil {
			last = err
		}
		return errEnough
	}
	_ = open(api.WatchEvent{})
	if want := fmt.Sprintf("there are %d streams of objects already", maxStreams); depth != maxStreams+1 || last == nil || !strings.HasPrefix(last.Error(), want) {
		t.Errorf("%d streams, %v, want %s", depth, last, want)
	}
}

func TestWatchRefuses(t *testing.T) {
	w := newWatched(t)
	for _, c := range []struct {
		query   api.Query
		unknown bool
		want    string
	}{
		{api.Query{Source: "mops"}, true, `there is no source "mops"; did you mean "maps"?`},
		{api.Query{Source: "maps", Index: "byValu"}, true, `source "maps" has no index "byValu"; did you mean "byValue"?`},
		{api.Query{Source: "maps", Labels: "a in b"}, false, "is no label selector"},
		{api.Query{Source: "maps", Filter: "objct.x"}, false, "filter: 1:1: undeclared reference"},
	} {
		err := w.Watch(t.Context(), c.query, nil)
		must.Fail(t, err, c.want)
		if q, ok := errors.AsType[*api.QueryError](err); !ok || q.Unknown != c.unknown {
			t.Errorf("%+v: %#v", c.query, err)
		}
	}
	err := w.Watch(t.Context(), api.Query{Source: "maps", Filter: `object.data.value`}, func(api.WatchEvent) error {
		w.apply(t, "one/a 1")
		return nil
	})
	must.Fail(t, err, "filter: on one/a: the result is of type string")
}
