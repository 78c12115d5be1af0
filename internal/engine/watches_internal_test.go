package engine

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/index"
	"github.com/deltarouter/deltarouter/test/must"
)

func watchesOf(name, id string, sources ...string) *watchedRoute {
	p := &compile.Route{Route: &config.Route{Name: name, ID: cmp.Or(id, name)}, WatchPrograms: make(map[string]*cel.Program)}
	for _, source := range sources {
		p.WatchPrograms[source] = &cel.Program{}
	}
	return newWatchedRoute(p, true, func([]string) *index.Catalog { return nil })
}

func plansOf(all ...*watchedRoute) (plans []compile.Route) {
	for _, one := range all {
		plans = append(plans, *one.route)
	}
	return plans
}

// useAll replaces the running Routes by these, of routes that all have one.
func (q *Watches) useAll(all ...*watchedRoute) { q.Use(all, plansOf(all...)) }

func changeOf(t *testing.T, source string, op event.Op, name string, old, now int) *event.Delta {
	t.Helper()
	d := &event.Delta{Source: source, Op: op}
	for version, to := range map[int]**event.Object{old: &d.Old, now: &d.New} {
		if version == 0 {
			continue
		}
		o, err := event.ParseObject(&event.Resource{}, fmt.Sprintf(`{"metadata": {"name": %q, "uid": "u", "resourceVersion": "%d"}}`, name, version))
		must.Succeed(t, err)
		if source == "nodes" || source == "namespaces" {
			o = withResource(t, o, source)
		}
		*to = o
	}
	return d
}

// withResource gives an object a resource whose objects may be on disk.
func withResource(t *testing.T, o *event.Object, resource string) *event.Object {
	t.Helper()
	r := &event.Resource{Kind: "Any"}
	r.Version, r.Resource = "v1", resource
	o, err := event.ParseObject(r, string(o.JSON()))
	must.Succeed(t, err)
	return o
}

// TestWatchesScope: a change of an object that the route of an include does not see waits for no
// route: no expression of an include is evaluated with it. Saved and taken over changes are none
// either, if the include saw more before.
func TestWatchesScope(t *testing.T) {
	// Guarantee: include-scope
	q := newWatches(watchesConfig{Metrics: metrics.New()})
	scoped := func(namespaces ...string) *watchedRoute {
		one := watchesOf("team/one", "", "namespaces")
		one.route.Fragment = &config.Fragment{Scope: &config.Scope{Prefix: "team", Namespaces: namespaces}}
		return one
	}
	one := scoped("a", "b")
	q.useAll(one)
	for _, name := range []string{"a", "b", "c"} {
		q.After(changeOf(t, "namespaces", event.Added, name, 0, 1), nil).Commit()
	}
	expectWaiting(t, one, "added namespaces a ->1", "added namespaces b ->1")
	records := one.cut()[0].Rules
	narrowed := scoped("a")
	q.useAll(narrowed)
	expectWaiting(t, narrowed, "added namespaces a ->1")
	restored := scoped("a")
	restored.restore(records, func(string) *event.Resource { return nil })
	expectWaiting(t, restored, "added namespaces a ->1")
}

func refOf(name string) cel.Ref {
	return cel.Ref{Key: event.Key{Namespace: "n", Name: name}, UID: "u-" + name}
}

// describe returns the waiting changes and the due objects, in order.
func (one *watchedRoute) describe() (all []string) {
	version := func(o *event.Object) string {
		if o == nil {
			return "-"
		}
		return o.ResourceVersion()
	}
	for _, c := range one.changes {
		if c.delta == nil {
			all = append(all, "everything")
			continue
		}
		all = append(all, c.delta.String()+" "+version(c.delta.Old)+">"+version(c.delta.New))
	}
	if one.putting != nil {
		all = append(all, one.putting.Key.Name)
	}
	for _, ref := range one.order {
		all = append(all, ref.Key.Name)
	}
	return all
}

func expectWaiting(t *testing.T, one *watchedRoute, want ...string) {
	t.Helper()
	if got := one.describe(); !slices.Equal(got, want) {
		t.Errorf("route %s: %q, want %q", one.route.Name, got, want)
	}
}

// TestWatchesWaiting: each change waits, except for initial ones and rounds of a resync. Its
// dependents become due once, even if several changes have the same one, and again if one is found
// while it is being emitted.
func TestWatchesWaiting(t *testing.T) {
	// Guarantee: watches
	q := newWatches(watchesConfig{Metrics: metrics.New()})
	one, other := watchesOf("one", "", "namespaces"), watchesOf("other", "", "nodes")
	q.useAll(one, other)
	committed := 0
	put := func(d *event.Delta) {
		if commit := q.After(d, event.CommitFunc(func() { committed++ })); commit != nil {
			commit.Commit()
		}
	}
	put(changeOf(t, "namespaces", event.Added, "a", 0, 1))
	put(changeOf(t, "namespaces", event.Updated, "a", 1, 3))
	put(changeOf(t, "namespaces", event.Deleted, "c", 5, 0))
	put(changeOf(t, "namespaces", event.Sync, "d", 0, 6))
	put(changeOf(t, "pods", event.Added, "e", 0, 7))
	initial := changeOf(t, "namespaces", event.Added, "f", 0, 8)
	initial.Initial = true
	put(initial)
	expectWaiting(t, one, "added namespaces a ->1", "updated namespaces a 1>3", "deleted namespaces c 5>-")
	expectWaiting(t, other)
	if committed != 6 {
		t.Errorf("%d committed", committed)
	}
	ask := func(refs ...cel.Ref) {
		c, _ := one.first()
		q.resolved(one, c, refs)
	}
	ask(refOf("x"), refOf("y"))
	ask(refOf("y"), refOf("z"))
	expectWaiting(t, one, "deleted namespaces c 5>-", "x", "y", "z")
	changes, objects := q.deps.Metrics.WatchesChanges, q.deps.Metrics.WatchesObjects
	if c, o := testutil.ToFloat64(changes.WithLabelValues("one")), testutil.ToFloat64(objects.WithLabelValues("one")); c != 1 || o != 3 {
		t.Errorf("the metrics have %v changes and %v objects", c, o)
	}
	ref, _ := one.next()
	ask(refOf("x"), refOf("z"))
	expectWaiting(t, one, "x", "y", "z", "x")
	for range 4 {
		if !one.active {
			t.Error("it is quiet while something is due")
		}
		q.done(one, ref)
		ref, _ = one.next()
	}
	if one.active || q.active != 0 || q.Settle(t.Context()) {
		t.Error("it is not quiet")
	}
	q.useAll(watchesOf("other", "", "nodes"))
	if testutil.CollectAndCount(changes) != 1 || testutil.CollectAndCount(objects) != 1 {
		t.Error("a route that is gone still has metrics")
	}
}

// TestWatchesOverflow: too many waiting changes become one that everything depends on.
func TestWatchesOverflow(t *testing.T) {
	// Guarantee: watches
	q := newWatches(watchesConfig{Metrics: metrics.New()})
	one := watchesOf("one", "", "namespaces")
	q.useAll(one)
	put := func(name string) { q.After(changeOf(t, "namespaces", event.Added, name, 0, 1), nil).Commit() }
	put("n")
	asked, _ := one.first()
	for range maxChanges {
		put("n")
	}
	q.resolved(one, asked, []cel.Ref{refOf("early")}) // covered by that change
	put("late")
	expectWaiting(t, one, "everything", "added namespaces late ->1")
	next := watchesOf("one", "", "namespaces")
	asked, _ = one.first()
	q.useAll(next)
	q.resolved(one, asked, []cel.Ref{refOf("x")}) // a Route that is out of use is not changed
	expectWaiting(t, next, "everything", "added namespaces late ->1")
}

// TestWatchesReload: the pending work of a route, including the object that is being emitted, is
// kept for the route of the same id, under any name.
func TestWatchesReload(t *testing.T) {
	// Guarantee: watches
	q := newWatches(watchesConfig{Metrics: metrics.New()})
	one, two, three := watchesOf("one", "", "namespaces", "nodes"), watchesOf("two", "", "nodes"), watchesOf("three", "", "nodes")
	q.useAll(one, two, three)
	q.After(changeOf(t, "nodes", event.Added, "n", 0, 1), nil).Commit()
	asked, _ := one.first()
	q.resolved(one, asked, []cel.Ref{refOf("x"), refOf("y")})
	q.After(changeOf(t, "namespaces", event.Added, "a", 0, 1), nil).Commit()
	commit := q.After(changeOf(t, "nodes", event.Updated, "n", 1, 2), nil)
	ref, _ := one.next()
	same, renamed := watchesOf("one", "", "nodes"), watchesOf("zwei", "two", "nodes")
	q.useAll(same, renamed)
	commit.Commit() // it was admitted before
	q.done(one, ref)
	expectWaiting(t, same, "updated nodes n 1>2", "x", "y")
	expectWaiting(t, renamed, "added nodes n ->1", "updated nodes n 1>2")
	if q.active != 2 {
		t.Errorf("%d are active", q.active)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if q.Settle(ctx) {
		t.Error("it has settled")
	}
	q.useAll()
	if q.active != 0 {
		t.Errorf("%d are active", q.active)
	}
}

// disk has the records of the watches of routes in a checkpoint.
type disk struct {
	db *checkpoint.DB
	t  *testing.T
}

func newDisk(t *testing.T) disk {
	t.Helper()
	db, err := checkpoint.Open(checkpoint.Config{Path: t.TempDir() + "/state.db"})
	must.Succeed(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return disk{db, t}
}

func (d disk) cut(q *Watches) {
	d.t.Helper()
	var cut checkpoint.Cut
	for _, c := range q.Dirty() {
		i := slices.IndexFunc(cut.Routes, func(of checkpoint.RouteCut) bool { return of.Name == c.Name })
		if i < 0 {
			cut.Routes = append(cut.Routes, c)
			continue
		}
		cut.Routes[i].Rules = append(cut.Routes[i].Rules, c.Rules...)
	}
	must.Succeed(d.t, d.db.Write(cut))
}

// restart begins a run with the content of the last cut.
func (d disk) restart(all ...*watchedRoute) *Watches {
	d.t.Helper()
	q := newWatches(watchesConfig{Metrics: metrics.New(), Log: slog.New(slog.DiscardHandler), Saved: true})
	routes := plansOf(all...)
	for i := range all {
		all[i].route = &routes[i]
	}
	unknown := func(string) *event.Resource { return nil }
	must.Succeed(d.t, q.Restore(d.db, all, routes, unknown, func(string) bool { return true }))
	q.Use(all, routes)
	return q
}

func (d disk) records(name string) int {
	d.t.Helper()
	records, err := d.db.LoadRules(name)
	must.Succeed(d.t, err)
	return len(records)
}

// TestWatchesRestart: each waiting change and each due object is in each cut until it was emitted;
// a restart restores them, also under another name, and work that came and went between two cuts is
// never written.
func TestWatchesRestart(t *testing.T) {
	// Guarantee: watches
	d := newDisk(t)
	one := watchesOf("one", "", "namespaces", "nodes")
	q := d.restart(one)
	q.After(changeOf(t, "namespaces", event.Updated, "a", 1, 2), nil).Commit()
	c, _ := one.first()
	q.resolved(one, c, []cel.Ref{refOf("w"), refOf("x"), refOf("y"), refOf("z")})
	ref, _ := one.next()
	q.done(one, ref)
	one.next()
	q.After(changeOf(t, "namespaces", event.Updated, "a", 2, 3), nil).Commit()
	q.After(changeOf(t, "nodes", event.Deleted, "b", 4, 0), nil).Commit()
	d.cut(q)
	if n := d.records("one"); n != 5 {
		t.Errorf("%d records", n)
	}

	one = watchesOf("one", "", "namespaces", "nodes")
	q = d.restart(one)
	expectWaiting(t, one, "updated namespaces a 2>3", "deleted nodes b 4>-", "x", "y", "z")
	ref, _ = one.next()
	q.done(one, ref)
	q.After(changeOf(t, "nodes", event.Added, "c", 0, 5), nil).Commit()
	d.cut(q)

	two := watchesOf("two", "one", "nodes") // nothing depends on namespaces any more
	q = d.restart(two)
	expectWaiting(t, two, "deleted nodes b 4>-", "added nodes c ->5", "y", "z")
	d.cut(q)
	if n, m := d.records("one"), d.records("two"); n != 4 || m != 0 {
		t.Errorf("%d records under the id, %d under the name", n, m)
	}
	for _, done := range []int{2, 2} {
		for range done {
			if c, waits := two.first(); waits {
				q.resolved(two, c, nil)
			} else if ref, due := two.next(); due {
				q.done(two, ref)
			}
		}
		d.cut(q)
	}
	if n := d.records("one"); n != 0 || two.active {
		t.Errorf("%d records are left", n)
	}
	if cuts := q.Dirty(); len(cuts) > 0 {
		t.Errorf("nothing changed, but %v", cuts)
	}
}

// TestWatchesRestartReload: a reload leaves on disk the work that the next start restores, and the
// work of a removed route, and no more.
func TestWatchesRestartReload(t *testing.T) {
	// Guarantee: watches
	d := newDisk(t)
	kept, renamed, bare, gone := watchesOf("kept", "", "nodes"), watchesOf("old", "", "nodes"), watchesOf("bare", "", "nodes"), watchesOf("gone", "", "nodes")
	q := d.restart(kept, renamed, bare, gone)
	q.After(changeOf(t, "nodes", event.Added, "a", 0, 1), nil).Commit()
	for _, one := range q.all {
		c, _ := one.first()
		q.resolved(one, c, []cel.Ref{refOf("x")})
	}
	d.cut(q)
	q.After(changeOf(t, "nodes", event.Added, "b", 0, 2), nil).Commit()
	next := []*watchedRoute{watchesOf("kept", "", "nodes"), watchesOf("new", "old", "nodes")}
	q.Use(next, append(plansOf(next...), compile.Route{Route: &config.Route{Name: "bare", ID: "bare"}}))
	d.cut(q)
	for name, want := range map[string]int{"kept": 2, "old": 2, "new": 0, "bare": 0, "gone": 2} {
		if n := d.records(name); n != want {
			t.Errorf("route %s: %d records, want %d", name, n, want)
		}
	}
	gone = watchesOf("gone", "", "nodes")
	d.restart(gone)
	expectWaiting(t, gone, "added nodes b ->2", "x")
}

// TestWatchesOfSecrets: the disk has only the identity of a Secret, so after a restart everything
// depends on it.
func TestWatchesOfSecrets(t *testing.T) {
	// Guarantee: watches
	d := newDisk(t)
	one := watchesOf("one", "", "secrets")
	q := d.restart(one)
	change := changeOf(t, "secrets", event.Updated, "s", 1, 2)
	change.Old, change.New = withResource(t, change.Old, "secrets"), withResource(t, change.New, "secrets")
	q.After(change, nil).Commit()
	d.cut(q)
	one = watchesOf("one", "", "secrets")
	d.restart(one)
	expectWaiting(t, one, "everything")
}
