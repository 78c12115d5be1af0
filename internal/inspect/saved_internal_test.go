package inspect

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/access"
	"github.com/deltarouter/deltarouter/internal/api"
	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/test/must"
)

// perNamespace is more than two transactions read.
const perNamespace = 2*savedAtOnce + 3

// newSaved returns the answers from a state file with the ConfigMaps of two namespaces: the value
// of the map 0 is v0, of the next one v1, of the next one v2, and so on.
func newSaved(ctx context.Context, t *testing.T) (*Saved, *checkpoint.DB) {
	t.Helper()
	inv := newWatched(t).objects.Load()
	db, err := checkpoint.Open(checkpoint.Config{Path: filepath.Join(t.TempDir(), "state.db")})
	must.Succeed(t, err)
	t.Cleanup(func() { must.Report(t, db.Close()) })
	var cut checkpoint.Cut
	for _, spec := range inv.watches["maps"] {
		w := checkpoint.WatchCut{ID: spec.ID(), Applied: "7"}
		for i := range perNamespace {
			w.Put = append(w.Put, parse(t, "configmaps", fmt.Sprintf(
				`{"metadata":{"name":"m%04d","namespace":%q,"labels":{"odd":"%t"}},"data":{"value":"v%d"}}`, i, spec.Namespace, i%2 == 1, i%3)))
		}
		cut.Watches = append(cut.Watches, w)
	}
	must.Succeed(t, db.Write(cut))
	return NewSaved(ctx, db, func(context.Context) (*Inventory, error) { return inv, nil }, slog.New(slog.DiscardHandler)), db
}

// follow reads all pages of a query, and returns the names in order.
func follow(t *testing.T, s *Saved, q api.Query) (names []string) {
	t.Helper()
	for {
		answer, err := s.Query(t.Context(), q)
		must.Succeed(t, err)
		for _, item := range answer.Items {
			var o struct {
				Metadata struct{ Namespace, Name string }
			}
			must.Succeed(t, json.Unmarshal(item, &o))
			names = append(names, o.Metadata.Namespace+"/"+o.Metadata.Name)
		}
		if !answer.Synced || answer.ResourceVersion != "7" {
			t.Fatalf("%+v", answer)
		}
		if answer.Continue == "" {
			return names
		}
		// the last object of the page, or on a slow machine a later one that was read
		token, err := base64.RawURLEncoding.DecodeString(answer.Continue)
		must.Succeed(t, err)
		namespace, name, _ := strings.Cut(string(token), "/")
		if q.After = (event.Key{Namespace: namespace, Name: name}); len(names) > 0 && string(token) < names[len(names)-1] {
			t.Fatalf("the page ends with %s, and the next one begins behind %s", names[len(names)-1], token)
		}
	}
}

// TestSaved: the pages of a standby have each object that the query selects once, in order, whether
// they are read in one transaction or in several.
func TestSaved(t *testing.T) {
	s, _ := newSaved(t.Context(), t)
	var all []string
	for _, namespace := range []string{"one", "two"} {
		for i := range perNamespace {
			all = append(all, fmt.Sprintf("%s/m%04d", namespace, i))
		}
	}
	number := func(name string) (n int) {
		_, _ = fmt.Sscanf(name[5:], "%d", &n)
		return n
	}
	for _, c := range []struct {
		name string
		q    api.Query
		want func(name string) bool
	}{
		{"all", api.Query{Limit: 1000}, func(string) bool { return true }},
		{"small pages", api.Query{Limit: 211}, func(string) bool { return true }},
		{"a namespace", api.Query{Limit: 1000, Namespace: "two"}, func(n string) bool { return n[:3] == "two" }},
		{"an object", api.Query{Limit: 5, Namespace: "two", Name: "m1002"}, func(n string) bool { return n == "two/m1002" }},
		{"a name", api.Query{Limit: 5, Name: "m0700"}, func(n string) bool { return n[4:] == "m0700" }},
		{"none", api.Query{Limit: 5, Namespace: "two", Name: "other"}, func(string) bool { return false }},
		{"an index", api.Query{Limit: 100, Index: "byValue", Value: "v2"}, func(n string) bool { return number(n)%3 == 2 }},
		{"an index by name", api.Query{Limit: 100, Index: "name", Value: "m0003"}, func(n string) bool { return number(n) == 3 }},
		{"labels", api.Query{Limit: 300, Labels: "odd=true"}, func(n string) bool { return number(n)%2 == 1 }},
		{"a filter", api.Query{Limit: 300, Namespace: "one", Filter: `object.data.value == "v1"`}, func(n string) bool { return n[:3] == "one" && number(n)%3 == 1 }},
	} {
		c.q.Source = "maps"
		want := slices.DeleteFunc(slices.Clone(all), func(n string) bool { return !c.want(n) })
		if got := follow(t, s, c.q); !slices.Equal(got, want) {
			t.Errorf("%s: got %d objects, want %d", c.name, len(got), len(want))
		}
	}
	sources, err := s.Sources(t.Context())
	must.Succeed(t, err)
	if len(sources) != 2 || sources[0].Objects != 2*perNamespace || !sources[0].Synced || sources[1].Synced || sources[1].Reason == "" {
		t.Errorf("%+v", sources)
	}
}

// TestSavedRefuses: a standby refuses filters that look objects up, and what the leader refuses. A
// takeover ends the queries.
func TestSavedRefuses(t *testing.T) {
	// Guarantee: api-access
	ctx, end := context.WithCancel(t.Context())
	s, _ := newSaved(ctx, t)
	for _, c := range []struct {
		q    api.Query
		want string
	}{
		{api.Query{Source: "maps", Filter: `size(lookup("maps.byValue", "v1")) > 0`}, "a standby has no indexes for look-ups: ask the leader"},
		{api.Query{Source: "pods"}, `there is no source "pods"`},
		{api.Query{Source: "secrets", Index: "byToken"}, "cannot be queried"},
		{api.Query{Source: "maps", Labels: "app in web"}, "is no label selector"},
	} {
		c.q.Limit = 1
		if _, err := s.Query(t.Context(), c.q); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c.q, err)
		}
	}
	_, err := s.Query(as(t, `list configmaps in namespace "one"`), api.Query{Source: "maps", Limit: 1, Namespace: "two"})
	if _, ok := errors.AsType[*access.Error](err); !ok {
		t.Error(err)
	}
	end()
	if _, err := s.Query(t.Context(), api.Query{Source: "maps", Limit: 1}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestSavedLetters: a standby shows the dead letters of its state file as of the request.
func TestSavedLetters(t *testing.T) {
	s, db := newSaved(t.Context(), t)
	shown := SavedLetters(s)
	letters, err := db.Letters(checkpoint.LettersConfig{})
	must.Succeed(t, err)
	for want := 1; want <= 2; want++ {
		o := parse(t, "configmaps", `{"metadata":{"name":"m","namespace":"one","uid":"u"}}`)
		must.Succeed(t, letters.Add(t.Context(), []checkpoint.Letter{{Route: "r", Error: "refused", Delta: &event.Delta{Source: "maps", Op: event.Added, New: o}}}))
		got, err := shown.Letters(t.Context(), "", 0, 10)
		must.Succeed(t, err)
		if len(got) != want || got[0].Error != "refused" || got[0].Delta.Object != nil {
			t.Errorf("%+v", got)
		}
	}
	one, err := shown.Letter(t.Context(), 2)
	must.Succeed(t, err)
	if one == nil || !strings.Contains(string(one.Delta.Object), `"uid":"u"`) {
		t.Errorf("%+v", one)
	}
	if none, err := shown.Letter(t.Context(), 3); none != nil || err != nil {
		t.Error(none, err)
	}
}
