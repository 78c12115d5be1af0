package inspect

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/deltarouter/deltarouter/internal/access"
	"github.com/deltarouter/deltarouter/internal/api"
	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/pkg/authz"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/test/must"
)

// as returns a context of the requests of a user with some rights, each as the text of an
// [authz.Right].
func as(t *testing.T, rights ...string) context.Context {
	t.Helper()
	cluster := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/tokenreviews") {
			_ = json.NewEncoder(w).Encode(authenticationv1.TokenReview{Status: authenticationv1.TokenReviewStatus{
				Authenticated: true, User: authenticationv1.UserInfo{Username: "ann"},
			}})
			return
		}
		var review authorizationv1.SubjectAccessReview
		_ = json.NewDecoder(r.Body).Decode(&review) // then nothing is allowed
		var right authz.Right
		if a := review.Spec.ResourceAttributes; a != nil {
			right = authz.Right{Verb: a.Verb, Group: a.Group, Resource: a.Resource, Namespace: a.Namespace, Name: a.Name}
		} else if a := review.Spec.NonResourceAttributes; a != nil {
			right = authz.Right{Verb: a.Verb, Path: a.Path}
		}
		review.Status.Allowed = slices.Contains(rights, right.String())
		_ = json.NewEncoder(w).Encode(review) // the client then fails
	}))
	t.Cleanup(cluster.Close)
	t.Cleanup(cluster.Client().CloseIdleConnections)
	request := httptest.NewRequest(http.MethodGet, "/", nil)
	request.Header.Set("Authorization", "Bearer x")
	caller, err := access.New(access.Config{URL: cluster.URL, Client: cluster.Client(), Now: time.Now}).Identify(request)
	must.Succeed(t, err)
	return access.With(t.Context(), caller)
}

// TestRights shows which rights a query and a stream need, and that nothing of the objects is used
// before they are there. A user without any gets one answer for all sources.
func TestRights(t *testing.T) {
	// Guarantee: api-access
	const (
		one, two = `configmaps in namespace "one"`, `configmaps in namespace "two"`
		secrets  = "secrets in all namespaces"
		sources  = "get /deltarouter/v1/sources"
		hint     = `user "ann" may not list these objects of source `
	)
	w := newWatched(t)
	w.apply(t, "one/a 1", "two/b 2")
	must.Succeed(t, w.secrets.Put(t.Context(), `{"metadata":{"name":"s","namespace":"one","uid":"u","resourceVersion":"2"}}`))
	for _, c := range []struct {
		query  api.Query
		rights []string
		found  int
		want   string
	}{
		{api.Query{Source: "maps"}, []string{"list " + one, "list " + two}, 2, ""},
		{api.Query{Source: "maps"}, []string{"list " + one}, 0, hint + `"maps"`},
		{api.Query{Source: "maps"}, []string{"list " + one, sources}, 0, `user "ann" may not list configmaps in namespace "two"`},
		{api.Query{Source: "maps", Namespace: "one"}, []string{"list " + one}, 1, ""},
		{api.Query{Source: "maps", Namespace: "two"}, []string{"list " + one}, 0, hint + `"maps"`},
		{api.Query{Source: "maps", Namespace: "one", Name: "a"}, []string{`get configmaps "a" in namespace "one"`}, 1, ""},
		{api.Query{Source: "maps", Namespace: "one", Name: "a"}, []string{`get configmaps "b" in namespace "one"`}, 0, hint + `"maps"`},
		{api.Query{Source: "maps", Namespace: "one", Index: "byValue", Value: "1"}, nil, 0, hint + `"maps"`},
		{api.Query{Source: "maps", Namespace: "one", Index: "none", Value: "1"}, nil, 0, hint + `"maps"`},
		{api.Query{Source: "secrets"}, []string{"list " + one, "list " + two}, 0, hint + `"secrets"`},
		{api.Query{Source: "sekrets"}, []string{"list " + one, "list " + two}, 0, hint + `"sekrets"`},
		{api.Query{Source: "sekrets"}, []string{sources}, 0, `there is no source "sekrets"; did you mean "secrets"?`},
		{api.Query{Source: "secrets", Filter: "wrong("}, nil, 0, hint + `"secrets"`},
		{api.Query{Source: "secrets"}, []string{"list " + secrets}, 1, ""},
		{api.Query{Source: "maps", Namespace: "one", Filter: strings.Repeat("true || ", 600) + "true"}, []string{"list " + one}, 0, "would take too long to compile"},
		{
			api.Query{Source: "maps", Namespace: "one", Filter: `list("secrets").size() == 1`},
			[]string{"list " + one, sources},
			0,
			`user "ann" may not list secrets in all namespaces`,
		},
		{api.Query{Source: "maps", Namespace: "one", Filter: `get("secrets", "one", "s") != null`}, []string{"list " + one, "list " + secrets}, 1, ""},
		{api.Query{Source: "maps", Namespace: "one", Filter: `get("maps", "two", "b") != null`}, []string{"list " + one}, 0, `may not list configmaps in namespace "two"`},
	} {
		c.query.Limit = 10
		answer, err := w.Query(as(t, c.rights...), c.query)
		if len(answer.Items) != c.found || (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v with %q: %d objects, %v, want %d, %s", c.query, c.rights, len(answer.Items), err, c.found, c.want)
		}
		// A stream needs watch where a list needs list or get. Look-ups need list in both.
		watch := strings.Split(strings.NewReplacer("list ", "watch ", "get configmaps", "watch configmaps").Replace(strings.Join(c.rights, ";")), ";")
		if c.query.Filter != "" {
			watch = append(watch, c.rights...)
		}
		n := 0
		err = w.Watch(as(t, watch...), c.query, func(e api.WatchEvent) error {
			if e.Type == api.WatchListed {
				return errEnough
			}
			n++
			return nil
		})
		if want := strings.NewReplacer("may not list these", "may not watch these", "may not list configmaps", "may not").Replace(c.want); n != c.found ||
			c.want != "" && !strings.Contains(strings.NewReplacer("may not list configmaps", "may not", "may not watch configmaps", "may not").Replace(err.Error()), want) {
			t.Errorf("stream of %+v with %q: %d objects, %v, want %d, %s", c.query, watch, n, err, c.found, want)
		}
	}
	if err := w.Watch(as(t, "list "+one), api.Query{Source: "maps", Namespace: "one"}, nil); err == nil {
		t.Error("a stream needs no watch")
	}
}

// TestFilterHidesSources shows that a filter of a caller without the right to list the sources does
// not find out which sources exist, nor their resources: hidden ones are unknown.
func TestFilterHidesSources(t *testing.T) {
	// Guarantee: api-access
	w := newWatched(t)
	const one = `list configmaps in namespace "one"`
	textOf := func(filter string, rights ...string) string {
		_, err := w.Query(as(t, rights...), api.Query{Source: "maps", Namespace: "one", Filter: filter, Limit: 1})
		return fmt.Sprint(err)
	}
	for _, filter := range []string{`list("NAME").size() == 1`, `list("NAME.byToken", "x").size() == 1`, `get("NAME", "one", "s") != null`, `count("NAME") > 0`} {
		exists, not := textOf(strings.ReplaceAll(filter, "NAME", "secrets"), one), textOf(strings.ReplaceAll(filter, "NAME", "mapping"), one)
		if strings.ReplaceAll(exists, "secrets", "NAME") != strings.ReplaceAll(not, "mapping", "NAME") || exists == "<nil>" {
			t.Errorf("%s: a source that exists: %s\none that does not: %s", filter, exists, not)
		}
		if may := textOf(strings.ReplaceAll(filter, "NAME", "sekrets"), one); strings.Contains(may, `"secrets"`) {
			t.Errorf("%s: %s", filter, may)
		}
	}
	if got := textOf(`list("secrets").size() == 1`, one, "list secrets in all namespaces"); got != "<nil>" {
		t.Errorf("a source that the caller may list: %s", got)
	}
	if got := textOf("object.metadata.name == 'a'", one); got != "<nil>" {
		t.Errorf("a filter without look-ups: %s", got)
	}
}

// TestRightsComeFirst shows that a client without rights does not take the place of another one,
// nor wait for one, while the API server is asked about it.
func TestRightsComeFirst(t *testing.T) {
	// Guarantee: api-access
	w := newWatched(t)
	for range cap(w.busy.all) {
		w.busy.all <- struct{}{}
	}
	for range cap(w.streams.all) {
		w.streams.all <- struct{}{}
	}
	ctx, cancel := context.WithTimeout(as(t), time.Minute)
	defer cancel()
	q := api.Query{Source: "maps", Limit: 10}
	if _, err := w.Query(ctx, q); err == nil || !strings.Contains(err.Error(), "may not list") {
		t.Errorf("query: %v", err)
	}
	if err := w.Watch(ctx, q, nil); err == nil || !strings.Contains(err.Error(), "may not watch") {
		t.Errorf("stream: %v", err)
	}
}

// TestSourcesHidesNumbers shows that a user without the right to list the objects of a source does
// not get their number.
func TestSourcesHidesNumbers(t *testing.T) {
	// Guarantee: api-access
	w := newWatched(t)
	w.apply(t, "one/a 1", "two/b 2")
	got := make(map[string]string)
	sources, err := w.Sources(as(t, "list secrets in all namespaces", `list configmaps in namespace "one"`))
	must.Succeed(t, err)
	for _, s := range sources {
		got[s.Name] = fmt.Sprint(s.Objects, s.Hidden)
	}
	if want := map[string]string{"maps": "0 true", "secrets": "0 false"}; !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestSeen shows the sources whose objects a route may show in its results.
func TestSeen(t *testing.T) {
	routes := []*config.Route{
		{Name: "first", From: []string{"pods"}},
		{Name: "second", From: []string{"pods"}, Upstream: []string{"first", "third"}},
		{Name: "third", From: []string{"nodes"}, Upstream: []string{"second"}},
	}
	p := &compile.Plan{}
	for _, r := range routes {
		p.Routes = append(p.Routes, compile.Route{Route: r})
	}
	p.Routes[0].HandlerGrants = []plugins.LookupGrant{{Source: "secrets"}}
	got := seenBy(p)
	for route, want := range map[string][]string{
		"first": {"pods", "secrets"}, "second": {"nodes", "pods", "secrets"}, "third": {"nodes", "pods", "secrets"},
	} {
		if !slices.Equal(got[route], want) {
			t.Errorf("%s: got %v, want %v", route, got[route], want)
		}
	}
}

// TestRoutesAreGuarded shows that taps, conditions and resyncs need the rights on all objects that
// the route sees.
func TestRoutesAreGuarded(t *testing.T) {
	// Guarantee: api-access
	w := newWatched(t)
	inv := w.objects.Load()
	inv.seen = map[string][]string{"all": {"maps", "secrets"}}
	both := []string{`list configmaps in namespace "one"`, `list configmaps in namespace "two"`}
	for name, try := range map[string]func(ctx context.Context) error{
		"tap": func(ctx context.Context) error {
			return NewTaps(w.objects).Show(ctx, nil, api.TapQuery{Route: "all"}, func(api.Tapped) error { return errEnough })
		},
		"tap of all": func(ctx context.Context) error {
			return NewTaps(w.objects).Show(ctx, nil, api.TapQuery{}, func(api.Tapped) error { return errEnough })
		},
		"active": func(ctx context.Context) error {
			_, _, err := Active(ctx, nil, inv, api.ActiveQuery{Route: "all"})
			return err
		},
		"resync of the route":  func(ctx context.Context) error { return inv.Resyncing(ctx, api.Resync{Route: "all"}) },
		"resync of all":        func(ctx context.Context) error { return inv.Resyncing(ctx, api.Resync{}) },
		"resync of the source": func(ctx context.Context) error { return inv.Resyncing(ctx, api.Resync{Source: "secrets"}) },
	} {
		watch := strings.Split(strings.ReplaceAll(strings.Join(both, ";"), "list ", "watch "), ";")
		err := try(as(t, slices.Concat(both, watch)...))
		if err == nil || !strings.Contains(err.Error(), "secrets in all namespaces") {
			t.Errorf("%s: %v", name, err)
		}
	}
	must.Report(t, inv.Resyncing(as(t, both...), api.Resync{Source: "maps"}))
	if err := inv.Resyncing(as(t, slices.Concat(both, []string{"list secrets in all namespaces"})...), api.Resync{}); err != nil {
		t.Error(err)
	}
}

// TestStatusHidesReasons shows that a user does not see a text that may name objects which the user
// may not list.
func TestStatusHidesReasons(t *testing.T) {
	// Guarantee: api-access
	inv := newWatched(t).objects.Load()
	inv.seen = map[string][]string{"both": {"maps", "secrets"}, "team/one": {"maps"}}
	status := func() api.Status {
		return api.Status{
			Sources: []api.SourceStatus{{Name: "maps", Reason: "m"}, {Name: "secrets", Reason: "s"}},
			Routes:  []api.RouteStatus{{Name: "both", Paused: "b"}, {Name: "team/one", Paused: "o"}, {Name: "gone", Paused: "g"}, {Name: "both"}},
			Checks: []api.Check{
				{Name: "config", Message: "c"},
				{Name: "includes/team", Message: "i"},
				{Name: "state", Message: "d"},
				{Name: "sources/secrets", Message: "ss"},
				{Name: "sources/maps", Message: "sm"},
				{Name: "routes/both", Message: "rb"},
				{Name: "routes/team/one", Message: "ro"},
				{Name: "sinks/out", Message: "so"},
				{Name: "sinks/out", OK: true},
			},
		}
	}
	texts := func(s api.Status) (all []string) {
		for _, one := range s.Sources {
			all = append(all, one.Reason)
		}
		for _, one := range s.Routes {
			all = append(all, one.Paused)
		}
		for _, one := range s.Checks {
			all = append(all, one.Message)
		}
		for i := range all {
			all[i] = strings.ReplaceAll(all[i], hidden, "-")
		}
		return all
	}
	maps := []string{`list configmaps in namespace "one"`, `list configmaps in namespace "two"`}
	if got := inv.reason(as(t, maps[0]), "maps", "r") + inv.reason(as(t, maps...), "maps", "r"); got != hidden+"r" {
		t.Errorf("reasons %q", got)
	}
	for _, c := range []struct {
		ctx  context.Context
		want string
	}{
		{t.Context(), "m s b o g  c i d ss sm rb ro so "},
		{as(t), "- - - - -  c i d - - - - - "},
		{as(t, maps...), "m - - o -  c i d - sm - ro - "},
		{as(t, append(maps, "list secrets in all namespaces")...), "m s b o -  c i d ss sm rb ro so "},
		{as(t, append(maps, "list secrets in all namespaces", "list *.* in all namespaces")...), "m s b o g  c i d ss sm rb ro so "},
	} {
		if got := strings.Join(texts(inv.Show(c.ctx, status())), " "); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

// TestLettersAreGuarded shows that a user sees, counts, retries and drops only the dead letters of
// objects that the user may get, and that texts which may be made of other objects are hidden.
func TestLettersAreGuarded(t *testing.T) {
	// Guarantee: api-access
	d, _ := newDesk(t, true)
	letters := sixLetters(t)
	for i := range letters {
		letters[i].Delta.Event = &event.Event{ID: "i", Type: "made", Route: "first", Data: []byte(`{"a":1}`)}
		letters[i].Call = []byte(`{"handler":"h"}`)
	}
	must.Succeed(t, d.store.Add(t.Context(), letters))
	inv := *d.objects.Load()
	inv.config = &config.Config{Routes: inv.config.Routes, Sources: map[string]*config.Source{"s": {Resource: "v1/pods"}, "t": {Resource: "v1/secrets"}}}
	inv.seen = map[string][]string{"web": {"s", "t"}}
	d.objects.Store(&inv)
	const pods, namedSecret = `get pods in namespace "ns"`, `get secrets "secret" in namespace "ns"`
	user := as(t, pods, `get pods "there" in namespace "ns"`)
	list, err := d.Letters(user, "web", 0, 9)
	must.Succeed(t, err)
	var got []string
	for _, l := range list {
		got = append(got, fmt.Sprint(l.ID, " ", l.Delta.Key, " ", l.Error == hidden))
	}
	if want := []string{"1 ns/there true", "2 ns/gone true", "3 ns/deleted true", "4 ns/again true"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if list, err = d.Letters(user, "web", 1, 2); err != nil || len(list) != 2 || list[1].ID != 3 {
		t.Errorf("a page: %+v, %v", list, err)
	}
	if list, err = d.Letters(as(t), "", 0, 9); err != nil || len(list) != 0 {
		t.Errorf("without rights: %+v, %v", list, err)
	}
	one, err := d.Letter(user, 1)
	if err != nil || one == nil || one.Error != hidden || one.Delta.Event.Data != nil || one.Delta.Event.Type != "" || one.Call != nil {
		t.Errorf("got %+v, %v", one, err)
	}
	if one, err = d.Letter(user, 5); one != nil || err != nil {
		t.Errorf("got %+v, %v", one, err)
	}
	if one, err = d.Letter(as(t, namedSecret), 5); one == nil || err != nil {
		t.Errorf("got %+v, %v", one, err)
	}
	all := as(t, pods, "list pods in all namespaces", "list secrets in all namespaces", `get pods "there" in namespace "ns"`)
	if one, err = d.Letter(all, 1); err != nil || one.Error != "no" || string(one.Delta.Event.Data) != `{"a":1}` {
		t.Errorf("got %+v, %v", one, err)
	}
	for _, which := range []api.Selection{{IDs: []uint64{5}}, {Route: "web"}} {
		if o, err := d.Retry(as(t), which, false); err != nil || o.Done != 0 || o.NotDone != len(which.IDs) {
			t.Errorf("got %+v, %v", o, err)
		}
	}
	o, err := d.Drop(user, api.Selection{IDs: []uint64{1, 5, 99}})
	if err != nil || o.Done != 1 || o.NotDone != 2 || o.Failed[0].Error != o.Failed[1].Error {
		t.Errorf("got %+v, %v", o, err)
	}
	if o, err = d.Drop(user, api.Selection{Route: "web"}); err != nil || o.Done != 3 || o.NotDone != 0 {
		t.Errorf("got %+v, %v", o, err)
	}
	if left := d.store.IDs("", 0, 0); !slices.Equal(left, []uint64{5, 6}) {
		t.Errorf("%v are left", left)
	}
}
