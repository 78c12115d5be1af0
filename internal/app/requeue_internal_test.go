package app

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/expr"
)

func requeueOf(name, was string, sources ...string) *requeue {
	p := &routePlan{Route: &config.Route{Name: name, Was: was}, requeue: make(map[string]*expr.Program)}
	for _, source := range sources {
		p.requeue[source] = &expr.Program{}
	}
	return &requeue{route: p, waiting: make(map[requeueKey]*event.Delta), wake: make(chan struct{}, 1)}
}

func changeOf(t *testing.T, source string, op event.Op, name string, old, now int) *event.Delta {
	t.Helper()
	d := &event.Delta{Source: source, Op: op}
	for version, to := range map[int]**event.Object{old: &d.Old, now: &d.New} {
		if version == 0 {
			continue
		}
		o, err := event.ParseObject(&event.Resource{}, fmt.Sprintf(`{"metadata": {"name": %q, "uid": "u", "resourceVersion": "%d"}}`, name, version))
		if err != nil {
			t.Fatal(err)
		}
		*to = o
	}
	return d
}

// describe says what waits, in order.
func (one *requeue) describe() (all []string) {
	version := func(o *event.Object) string {
		if o == nil {
			return "-"
		}
		return o.ResourceVersion()
	}
	for _, key := range one.order {
		d := one.waiting[key]
		all = append(all, d.String()+" "+version(d.Old)+">"+version(d.New))
	}
	return all
}

// TestRequeueWaiting: changes of one object wait as one, initial ones and rounds of a resync do not count, and what came while it was put
// through waits again.
func TestRequeueWaiting(t *testing.T) {
	q := newRequeuer(&router{})
	one, other := requeueOf("one", "", "namespaces"), requeueOf("other", "", "nodes")
	q.use([]*requeue{one, other})
	committed := 0
	put := func(d *event.Delta) {
		if commit := q.after(d, func() { committed++ }); commit != nil {
			commit()
		}
	}
	put(changeOf(t, "namespaces", event.Added, "a", 0, 1))
	put(changeOf(t, "namespaces", event.Updated, "b", 1, 2))
	put(changeOf(t, "namespaces", event.Updated, "a", 1, 3))
	put(changeOf(t, "namespaces", event.Updated, "b", 2, 4))
	put(changeOf(t, "namespaces", event.Deleted, "c", 5, 0))
	put(changeOf(t, "namespaces", event.Sync, "d", 0, 6))
	put(changeOf(t, "pods", event.Added, "e", 0, 7))
	initial := changeOf(t, "namespaces", event.Added, "f", 0, 8)
	initial.Initial = true
	put(initial)
	want := []string{"added namespaces a ->3", "updated namespaces b 1>4", "deleted namespaces c 5>-"}
	if got := one.describe(); !slices.Equal(got, want) || len(other.order) > 0 || committed != 8 {
		t.Errorf("%q, %d committed", got, committed)
	}
	key, d, _ := one.first()
	put(changeOf(t, "namespaces", event.Deleted, "a", 9, 0)) // while it is put through
	q.done(one, key, d)
	want = []string{"updated namespaces b 1>4", "deleted namespaces c 5>-", "deleted namespaces a 9>-"}
	if got := one.describe(); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	for range 3 {
		if !one.active {
			t.Error("it is quiet while something waits")
		}
		key, d, _ = one.first()
		q.done(one, key, d)
	}
	if one.active || q.active != 0 || q.settle(t.Context()) {
		t.Error("it is not quiet")
	}
}

// TestRequeueOverflow: more objects than can wait are everything.
func TestRequeueOverflow(t *testing.T) {
	q := newRequeuer(&router{})
	one := requeueOf("one", "", "namespaces")
	q.use([]*requeue{one})
	for i := range maxRequeued + 5 {
		q.after(changeOf(t, "namespaces", event.Added, fmt.Sprint("n", i), 0, 1), nil)()
	}
	if !one.everything || len(one.order) > 0 || len(one.waiting) > 0 {
		t.Errorf("%d wait", len(one.order))
	}
	if _, d, all := one.first(); d != nil || !all {
		t.Error("not everything is put through")
	}
	q.after(changeOf(t, "namespaces", event.Added, "late", 0, 1), nil)()
	next := requeueOf("one", "", "namespaces")
	q.use([]*requeue{next}) // while everything is put through
	if !next.everything || !next.active {
		t.Error("a reload has forgotten everything")
	}
	q.done(one, requeueKey{}, nil) // what is out of use changes nothing
	next.first()
	q.done(next, requeueKey{}, nil)
	if next.active || q.active != 0 {
		t.Error("it is not quiet")
	}
}

// TestRequeueReload: what waits for a route, what is being put through included, waits on for that of its name, or for the one that has
// been it.
func TestRequeueReload(t *testing.T) {
	q := newRequeuer(&router{})
	one, two, three := requeueOf("one", "", "namespaces", "nodes"), requeueOf("two", "", "nodes"), requeueOf("three", "", "nodes")
	q.use([]*requeue{one, two, three})
	q.after(changeOf(t, "nodes", event.Added, "n", 0, 1), nil)()
	q.after(changeOf(t, "namespaces", event.Added, "a", 0, 1), nil)()
	commit := q.after(changeOf(t, "nodes", event.Updated, "n", 1, 2), nil)
	key, d, _ := one.first()
	same, renamed := requeueOf("one", "", "nodes"), requeueOf("zwei", "two", "nodes")
	q.use([]*requeue{same, renamed})
	commit() // it was admitted before
	q.done(one, key, d)
	for _, r := range []*requeue{same, renamed} {
		if got := r.describe(); !slices.Equal(got, []string{"added nodes n ->2"}) {
			t.Errorf("%s: %q", r.route.Name, got)
		}
	}
	if q.active != 2 {
		t.Errorf("%d are active", q.active)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if q.settle(ctx) {
		t.Error("it has settled")
	}
	q.use(nil)
	if q.active != 0 {
		t.Errorf("%d are active", q.active)
	}
}
