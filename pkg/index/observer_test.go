package index_test

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/index"
	"github.com/deltarouter/deltarouter/test/must"
)

// TestObserve shows that an observer is called once for each change, with the object before and
// after it, until it is removed, and that the exchange of indexes is no change.
func TestObserve(t *testing.T) {
	f := newFixture(t, 1, map[string]string{"byNode": "object.spec.nodeName"})
	s := f.stores[0]
	var seen []string
	observe := func(name string) (stop func()) {
		return s.Observe(func(before, now *event.Object) {
			version := func(o *event.Object) string {
				if o == nil {
					return "-"
				}
				return o.Key().Name + o.ResourceVersion()
			}
			seen = append(seen, name+":"+version(before)+">"+version(now))
		})
	}
	put := func(name, version string) *event.Object {
		return pod(t, "ns", name, fmt.Sprintf(`,"resourceVersion":%q`, version), "")
	}
	want := func(all string) {
		t.Helper()
		if got := strings.Join(seen, " "); got != all {
			t.Errorf("got %q, want %q", got, all)
		}
		seen = nil
	}
	s.Put(put("a", "1"))
	stopX := observe("x")
	s.Put(put("a", "2"))
	stopY := observe("y")
	s.Prepare(put("b", "3"))()
	want("x:a1>a2 x:->b3 y:->b3")
	s.Delete(event.Key{Namespace: "ns", Name: "none"})
	stopX()
	stopX()
	s.Delete(event.Key{Namespace: "ns", Name: "a"})
	want("y:a2>-")
	swap := s.Reindex()
	s.Put(put("b", "4"))
	swap()
	s.Put(put("b", "5"))
	want("y:b3>b4 y:b4>b5")
	stopZ := observe("z")
	stopY()
	s.Put(put("b", "6"))
	stopZ()
	s.Put(put("b", "7"))
	want("z:b5>b6")
}

// TestObserversComeAndGo shows that an observer that begins together with a list sees each later
// change once, while others begin and end.
func TestObserversComeAndGo(t *testing.T) {
	s := index.NewStore()
	var cut sync.Mutex // as the cut lock of an informer
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for range 20 {
				must.Report(t, observeSome(s, &cut))
			}
		})
	}
	ended := make(chan struct{})
	go func() {
		readers.Wait()
		close(ended)
	}()
	for i := 0; ; i++ {
		select {
		case <-ended:
			return
		default:
		}
		o := pod(t, "ns", fmt.Sprint(i%5), fmt.Sprintf(`,"resourceVersion":"%d"`, i), "")
		cut.Lock()
		if i%4 == 3 {
			s.Delete(o.Key())
		} else {
			s.Put(o)
		}
		cut.Unlock()
		runtime.Gosched() // on one processor, the others wait for it
	}
}

// observeSome follows the changes of a store for a while, and compares its copy with the store.
func observeSome(s *index.Store, cut *sync.Mutex) (err error) {
	all, changes := make(map[event.Key]*event.Object), 0
	cut.Lock()
	for o := range s.All() {
		all[o.Key()] = o
	}
	stop := s.Observe(func(before, now *event.Object) {
		changes++
		key := before
		if now != nil {
			key = now
		}
		if all[key.Key()] != before {
			err = fmt.Errorf("%v follows %v", before, all[key.Key()])
		}
		if now == nil {
			delete(all, key.Key())
		} else {
			all[key.Key()] = now
		}
	})
	cut.Unlock()
	for range 20 {
		runtime.Gosched()
	}
	cut.Lock()
	stop()
	have, seen := slices.Collect(s.All()), changes
	if err == nil && len(have) != len(all) {
		err = fmt.Errorf("the copy has %d objects after %d changes, want %d", len(all), seen, len(have))
	}
	cut.Unlock()
	runtime.Gosched()
	cut.Lock()
	defer cut.Unlock()
	if changes != seen {
		err = fmt.Errorf("%d changes after the end", changes-seen)
	}
	return err
}

// TestHas shows that an index is evaluated for objects that are not in the store, too.
func TestHas(t *testing.T) {
	f := newFixture(t, 2, map[string]string{"byNode": "object.spec.nodeName"})
	o := pod(t, "ns", "p", "", `,"spec":{"nodeName":"n1"}`)
	for _, c := range []struct {
		source, index, value string
		want                 bool
	}{
		{"pods", "byNode", "n1", true},
		{"pods", "byNode", "n2", false},
		{"pods", index.ByNamespace, "ns", true},
		{"pods", index.ByName, "ns", false},
		{"pods", "byApp", "n1", false},
		{"nodes", "byNode", "n1", false},
	} {
		if got := f.catalog.Has(c.source, c.index, c.value, o); got != c.want {
			t.Errorf("%+v: %t", c, got)
		}
	}
}
