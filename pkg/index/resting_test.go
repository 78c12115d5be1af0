package index_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"runtime/metrics"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/index"
	"github.com/deltarouter/deltarouter/test/must"
)

// TestRest shows that objects that rest take less than a fifth of their memory, and that every way
// to read them returns them as they were.
func TestRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, all := restingFixture(t, 500)
		s, plain := f.stores[0], f.stores[0].Bytes()
		time.Sleep(rest)
		if now := s.Bytes(); now > plain/5 {
			t.Errorf("%d bytes of %d are left", now, plain)
		}
		for i, o := range all {
			if !atRest(s, o) || !sameText(s.Get(o.Key()), o) || !sameText(f.catalog.Get("pods", o.Key().Namespace, o.Key().Name), o) {
				t.Fatalf("%d: at rest %t, got %v, want %v", i, atRest(s, o), s.Get(o.Key()), o)
			}
		}
		checkReaders(t, f, all)
	})
}

// checkReaders compares the results of look-ups with the objects that they should return.
func checkReaders(t *testing.T, f *fixture, all []*event.Object) {
	t.Helper()
	scope := index.NewScopedCatalog(&config.Scope{Namespaces: []string{"ns1", "ns2"}})
	scope.Add("pods", f.stores, f.byName)
	for _, q := range []struct{ index, value string }{
		{"", ""},
		{"byNode", "n3"},
		{"byUser", "u4"},
		{index.ByName, "p7"},
		{index.ByNamespace, "ns1"},
		{index.ByOwner, "o2"},
		{index.ByOwner, "none"},
	} {
		for _, c := range []*index.Catalog{f.catalog, scope} {
			want := 0
			found := c.Lookup("pods", q.index, q.value)
			for i, o := range all {
				holds := q.index == "" || c.Has("pods", q.index, q.value, o)
				if holds = holds && (c == f.catalog || i%3 > 0); holds {
					want++
				}
				if holds != slices.ContainsFunc(found, func(other *event.Object) bool { return sameText(o, other) }) {
					t.Errorf("%s=%s: found %v: %t", q.index, q.value, o, !holds)
				}
			}
			if len(found) != want || c.Count("pods", q.index, q.value) != want {
				t.Errorf("%s=%s: found %d, counted %d, want %d", q.index, q.value, len(found), c.Count("pods", q.index, q.value), want)
			}
		}
	}
	if n := len(slices.Collect(f.stores[0].All())); n != len(all) {
		t.Errorf("all are %d, want %d", n, len(all))
	}
}

// TestRestRecent shows that look-ups of a few objects at rest share copies until the next pass, and
// never return an older state.
func TestRestRecent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, all := restingFixture(t, 500, rest/3, time.Second)
		s, key := f.stores[0], all[3].Key()
		time.Sleep(rest)
		get := func() *event.Object { return f.catalog.Get("pods", key.Namespace, key.Name) }
		first := get()
		if found := f.catalog.Lookup("pods", index.ByName, key.Name); get() != first || len(found) != 1 || found[0] != first {
			t.Error("look-ups of an object at rest do not share a copy")
		}
		s.Put(restingPod(t, 4, 1004)) // so that there is a pass
		time.Sleep(rest)
		if get() == first {
			t.Error("a copy outlives a pass")
		}
		all[3] = restingPod(t, 3, 1003)
		s.Put(all[3])
		if get() != all[3] {
			t.Error("a copy of the former state was read")
		}
		time.Sleep(rest)
		if !atRest(s, all[3]) || !sameText(get(), all[3]) || !sameText(get(), all[3]) {
			t.Error("the copy is not the present state")
		}
	})
}

// TestRestEnds changes objects at rest, and shows that observers and indexes follow.
func TestRestEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, all := restingFixture(t, 500)
		s := f.stores[0]
		time.Sleep(rest)
		var seen []string
		stop := s.Observe(func(before, now *event.Object) { seen = append(seen, fmt.Sprint(before, now)) })
		defer stop()
		all[0] = restingPod(t, 0, 1000)
		s.Put(all[0])
		all[1] = restingPod(t, 1, 1001)
		s.Prepare(all[1])()
		s.Delete(all[499].Key())
		all = all[:499]
		if want := []string{"ns0/p0 ns0/p0", "ns1/p1 ns1/p1", "ns1/p499 <nil>"}; !slices.Equal(seen, want) {
			t.Errorf("observed %q, want %q", seen, want)
		}
		if atRest(s, all[0]) || atRest(s, all[1]) || !atRest(s, all[2]) {
			t.Error("a changed object is at rest, or another is not")
		}
		checkReaders(t, f, all)
		s.Put(restingPod(t, 0, 1000)) // the same version again
		for _, o := range all {
			s.Delete(o.Key())
		}
		if s.Len() != 0 || s.Bytes() != 0 {
			t.Errorf("%d objects and %d bytes are left", s.Len(), s.Bytes())
		}
	})
}

// TestRestReindex exchanges the indexes while objects are at rest, and while others come to rest.
func TestRestReindex(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, all := restingFixture(t, 500, rest/3, time.Second)
		s := f.stores[0]
		time.Sleep(rest)
		for i := range 100 {
			all[i] = restingPod(t, i, 1000+i)
			s.Put(all[i])
		}
		next := newFixture(t, 0, map[string]string{"byNode": "object.spec.nodeName", "byPhase": "object.status.phase"})
		swap := s.Reindex(next.specs...)
		bytes := s.Bytes()
		time.Sleep(rest)
		if now := s.Bytes(); now >= bytes {
			t.Errorf("%d bytes, and %d at rest", bytes, now)
		}
		all[0] = restingPod(t, 0, 2000)
		s.Put(all[0])
		bytes = s.Bytes()
		swap()
		next.catalog.Add("pods", []*index.Store{s}, next.byName)
		if got := next.catalog.Count("pods", "byPhase", "Running"); got != 500 || s.Bytes() != bytes {
			t.Errorf("%d objects and %d bytes with the new indexes, want 500 and %d", got, s.Bytes(), bytes)
		}
		for i, o := range all {
			if atRest(s, o) != (i > 0) || !sameText(s.Get(o.Key()), o) {
				t.Errorf("%d: at rest %t", i, atRest(s, o))
			}
		}
		time.Sleep(rest)
		if !atRest(s, all[0]) {
			t.Error("it does not come to rest under the new indexes")
		}
	})
}

// TestRestless lists the objects that stay as they are: those that change, those of a small store,
// and those that would not become smaller.
func TestRestless(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	noise := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte('a' + random.IntN(26))
		}
		return string(b)
	}
	synctest.Test(t, func(t *testing.T) {
		f, all := restingFixture(t, 500)
		s := f.stores[0]
		foreign := pod(t, "ns", "secret", `,"uid":"u"`, fmt.Sprintf(`,"data":{"key":%q}`, noise(3000)))
		s.Put(foreign)
		small, _ := restingFixture(t, 20)
		for version := range 20 {
			all[0] = restingPod(t, 0, 1000+version)
			s.Put(all[0])
			time.Sleep(rest / 3)
			if s.Get(all[0].Key()) != all[0] {
				t.Fatal("an object that changes every forty seconds is compressed")
			}
		}
		if s.Get(foreign.Key()) != foreign {
			t.Error("random text is compressed")
		}
		if o := restingPod(t, 3, 3); atRest(small.stores[0], o) {
			t.Error("objects of a small store are compressed")
		}
		if !atRest(s, all[1]) {
			t.Error("no object is compressed")
		}
	})
}

// TestRestMemory shows that the heap shrinks as the store says, also if all indexes are in use.
func TestRestMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _ := restingFixture(t, 1000)
		for _, name := range []string{index.ByName, index.ByNamespace, index.ByOwner} {
			f.catalog.Lookup("pods", name, "")
		}
		before, bytes := heap(), f.stores[0].Bytes()
		time.Sleep(rest)
		saved := bytes - f.stores[0].Bytes()
		if got := before - heap(); got < saved*9/10 {
			t.Errorf("the heap has shrunk by %d KiB, want %d", got>>10, saved>>10)
		}
		runtime.KeepAlive(f)
	})
}

// TestCompress shows that all objects are compressed at once, also those of which a pass has seen a
// former state, and that no later pass is lost.
func TestCompress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, all := restingFixture(t, 3000)
		s, plain := f.stores[0], f.stores[0].Bytes()
		time.Sleep(rest / 2) // a pass has seen them once
		all[0] = restingPod(t, 0, 9000)
		s.Put(all[0])
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		s.Compress(ended) // it ends after the first turn at the latest
		began := time.Now()
		s.Compress(t.Context())
		if took := time.Since(began); took > 10*time.Second || s.Bytes() > plain/5 {
			t.Errorf("%d bytes of %d are left after %v", s.Bytes(), plain, took)
		}
		for i, o := range all {
			if !atRest(s, o) || !sameText(s.Get(o.Key()), o) {
				t.Fatalf("%d: at rest %t, got %v, want %v", i, atRest(s, o), s.Get(o.Key()), o)
			}
		}
		checkReaders(t, f, all)
		all[1] = restingPod(t, 1, 9001)
		s.Put(all[1])
		if atRest(s, all[1]) {
			t.Error("a changed object is at rest")
		}
		time.Sleep(rest)
		if !atRest(s, all[1]) {
			t.Error("no pass follows")
		}
		small, few := restingFixture(t, 20)
		small.stores[0].Compress(t.Context())
		if atRest(small.stores[0], few[3]) {
			t.Error("objects of a small store are compressed")
		}
	})
}

// TestRestReleases shows that the memory that the first pass saves is returned to the system.
func TestRestReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _ := restingFixture(t, 3000)
		runtime.GC()
		before, bytes := released(), f.stores[0].Bytes()
		time.Sleep(rest)
		saved := bytes - f.stores[0].Bytes()
		if got := released() - before; got < saved/2 {
			t.Errorf("%d KiB are saved, and %d KiB returned", saved>>10, got>>10)
		}
		runtime.KeepAlive(f)
	})
}

// released returns the bytes of the heap that are returned to the system.
func released() int64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64()) //nolint:gosec // small
}

// TestRestClusterScoped reads objects without a namespace through a scope while they rest.
func TestRestClusterScoped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		resource := &event.Resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}}
		s := index.NewStore()
		scoped := index.NewScopedCatalog(&config.Scope{Namespaces: []string{"n1"}})
		scoped.Add("namespaces", []*index.Store{s}, nil)
		for i := range 500 {
			o, err := event.ParseObject(resource, fmt.Sprintf(`{"metadata":{"name":"n%d"},"spec":%q}`, i, strings.Repeat("text ", 1000)))
			must.Succeed(t, err)
			s.Put(o)
		}
		time.Sleep(rest)
		seen, hidden := s.Get(event.Key{Name: "n1"}), s.Get(event.Key{Name: "n2"})
		if !atRest(s, seen) || !atRest(s, hidden) {
			t.Fatal("they are not at rest")
		}
		for _, name := range []string{"", index.ByName} {
			if found := scoped.Lookup("namespaces", name, "n1"); len(found) != 1 || found[0].Key().Name != "n1" || scoped.Count("namespaces", name, "n1") != 1 {
				t.Errorf("%q: found %v", name, found)
			}
		}
		if scoped.Get("namespaces", "", "n1") == nil || scoped.Get("namespaces", "", "n2") != nil {
			t.Error("the scope is not observed")
		}
	})
}

// TestRestChanges lists the changes after which the compressed form of an object must not replace
// its entry.
func TestRestChanges(t *testing.T) {
	later := restingPod(t, 0, 1000)
	for name, change := range map[string]func(*index.Store){
		"none":       func(*index.Store) {},
		"put":        func(s *index.Store) { s.Put(later) },
		"put again":  func(s *index.Store) { s.Put(restingPod(t, 0, 0)) },
		"deleted":    func(s *index.Store) { s.Delete(later.Key()) },
		"recreated":  func(s *index.Store) { s.Delete(later.Key()); s.Put(later) },
		"other view": func(s *index.Store) { s.Reindex()() },
	} {
		t.Run(name, func(t *testing.T) {
			f, _ := restingFixture(t, 10)
			s := f.stores[0]
			var now *event.Object
			var bytes int64
			done := s.CompressAfter(later.Key(), func() {
				change(s)
				now, bytes = s.Get(later.Key()), s.Bytes()
			})
			if done != (name == "none") {
				t.Fatalf("replaced: %t", done)
			}
			if !done && (s.Get(later.Key()) != now || s.Bytes() != bytes) {
				t.Error("the store has changed")
			}
		})
	}
}

// TestRestRecreated deletes and creates objects at a rate at which none comes to rest, and shows
// that the store does not remember each of them.
func TestRestRecreated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, all := restingFixture(t, 500)
		s := f.stores[0]
		time.Sleep(rest)
		before := heap()
		for range 1500 {
			for _, o := range all[:50] {
				s.Delete(o.Key())
				s.Put(o)
			}
			time.Sleep(rest / 10)
		}
		if now := heap(); now > before+512<<10 {
			t.Errorf("%d KiB, and %d after 75,000 new objects", before>>10, now>>10)
		}
		runtime.KeepAlive(f)
		runtime.KeepAlive(all)
	})
}

// TestRestConcurrently lets many readers and a writer work while objects come to rest.
func TestRestConcurrently(t *testing.T) {
	f, all := restingFixture(t, 400, time.Microsecond, 50*time.Microsecond)
	s := f.stores[0]
	done := make(chan struct{})
	var keys []event.Key
	var want []string
	for _, o := range all {
		keys, want = append(keys, o.Key()), append(want, o.Place("status"))
	}
	var readers sync.WaitGroup
	for n := range 3 {
		readers.Go(func() {
			for i := n; ; i = (i + 1) % len(keys) {
				select {
				case <-done:
					return
				default:
				}
				if o := s.Get(keys[i]); o == nil || o.Place("status") != want[i] {
					t.Errorf("%v: read %v", keys[i], o)
					return
				}
				if got := f.catalog.Lookup("pods", "byNode", "n3"); len(got) != 40 {
					t.Errorf("%d objects of a node, want 40", len(got))
				}
			}
		})
	}
	for resting, version := 0, 1000; resting < 100; version++ {
		i := version * 7 % 400
		if atRest(s, all[i]) {
			resting++
		}
		all[i] = restingPod(t, i, version)
		s.Put(all[i])
		if version%500 == 0 {
			if swap := s.Reindex(f.specs[:1+version/500%2]...); swap != nil {
				swap()
			}
		}
	}
	close(done)
	readers.Wait()
	for _, o := range all {
		if !sameText(s.Get(o.Key()), o) {
			t.Errorf("%v was lost", o)
		}
		s.Delete(o.Key())
	}
	if s.Bytes() != 0 {
		t.Errorf("%d bytes are left", s.Bytes())
	}
}
