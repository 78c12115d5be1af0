package informer

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/test/must"
)

// mapStore is a store without locks.
type mapStore map[event.Key]*event.Object

func (m mapStore) Get(key event.Key) *event.Object { return m[key] }
func (m mapStore) Put(o *event.Object)             { m[o.Key()] = o }
func (m mapStore) Delete(key event.Key)            { delete(m, key) }
func (m mapStore) All() iter.Seq[*event.Object] {
	return slices.Values(slices.SortedFunc(maps.Values(m), func(a, b *event.Object) int { return cmp.Compare(a.Key().Name, b.Key().Name) }))
}

// replayer is a Downstream that rebuilds the cluster from the deltas, and checks that each fits the
// state so far.
type replayer struct {
	t     *rapid.T
	known map[event.Key]*event.Object
	count int
}

func (r *replayer) Admit(_ context.Context, d *event.Delta) (event.Admission, error) {
	return event.CommitFunc(func() {
		r.count++
		key, before := d.Key(), r.known[d.Key()]
		switch d.Op {
		case event.Added:
			if before != nil || d.Old != nil {
				r.t.Fatalf("%v, but it is there: %v", d, before)
			}
			r.known[key] = d.New
		case event.Updated:
			if before == nil || !before.Same(d.Old) || before.UID() != d.New.UID() || d.Old.Same(d.New) {
				r.t.Fatalf("%v from %v to %v, known: %v", d, d.Old, d.New, before)
			}
			r.known[key] = d.New
		case event.Deleted:
			if before == nil || before.UID() != d.Old.UID() || d.New != nil {
				r.t.Fatalf("%v of %v, known: %v", d, d.Old, before)
			}
			delete(r.known, key)
		case event.Deselected, event.Sync, event.Entered, event.Left:
			r.t.Fatalf("unexpected %v", d)
		}
	}), nil
}

func object(t *rapid.T, name string, uid, version int) *event.Object {
	o, err := event.ParseObject(podResource(), fmt.Sprintf(`{"metadata":{"name":%q,"uid":"%d","resourceVersion":"%d"}}`, name, uid, version))
	must.Succeed(t, err)
	return o
}

// For any events, with some of them lost in gaps and others repeated: the deltas add up to the
// cluster, no delta contradicts an earlier one, and a list without changes makes none.
func TestReplaceProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		down := &replayer{t: t, known: make(map[event.Key]*event.Object)}
		f := New(Config{Metrics: metrics.New(), Log: slog.New(slog.DiscardHandler), Downstream: down, Cluster: "test"})
		store := mapStore{}
		w := f.Watch(*podSpec(), store, Source{Name: "pods"})
		s := w.applier.Store(t.Context())
		cluster, version, uids := map[string]*event.Object{}, 1, 0
		type happening struct {
			deleted bool
			o       *event.Object
		}
		var told []happening
		relist := func() {
			items := make([]any, 0, len(cluster))
			for _, name := range slices.Sorted(maps.Keys(cluster)) {
				items = append(items, cluster[name])
			}
			_ = s.Replace(items, fmt.Sprint(version))
		}
		tell := func(h happening) {
			if h.deleted {
				_ = s.Delete(h.o)
			} else {
				_ = s.Update(h.o)
			}
		}
		relist()
		lost := false
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			name := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "name")
			version++
			var h happening
			switch what := rapid.SampledFrom([]string{"put", "put", "delete", "relist", "lose", "replay"}).Draw(t, "what"); what {
			case "put":
				uid := 0
				if old := cluster[name]; old != nil {
					_, _ = fmt.Sscan(old.UID(), &uid)
				} else {
					uids++
					uid = uids
				}
				cluster[name] = object(t, name, uid, version)
				h = happening{o: cluster[name]}
			case "delete":
				old := cluster[name]
				if old == nil {
					continue
				}
				uid := 0
				_, _ = fmt.Sscan(old.UID(), &uid)
				delete(cluster, name)
				h = happening{deleted: true, o: object(t, name, uid, version)}
			case "relist":
				relist()
				lost, told = false, nil
				continue
			case "lose": // events are lost until the next list
				lost = true
				continue
			case "replay": // the last few events again, as from an older resourceVersion
				before := down.count
				for i := max(0, len(told)-3); i < len(told); i++ {
					tell(told[i])
				}
				if down.count != before {
					t.Fatal("a replay made deltas")
				}
				continue
			}
			if !lost {
				tell(h)
				told = append(told, h)
			}
		}
		if lost {
			relist()
		}
		if len(store) != len(cluster) || len(down.known) != len(cluster) {
			t.Fatalf("cluster %v, store %v, told %v", cluster, store, down.known)
		}
		for name, o := range cluster {
			if !store[o.Key()].Same(o) || !down.known[o.Key()].Same(o) {
				t.Fatalf("%s: cluster %s, store %s, told %s", name, o.JSON(), store[o.Key()].JSON(), down.known[o.Key()].JSON())
			}
		}
		before := down.count
		relist()
		if down.count != before {
			t.Fatal("a list without changes made deltas")
		}
	})
}
