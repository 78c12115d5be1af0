package index_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/index"
	"github.com/deltarouter/deltarouter/test/must"
)

// rest is a time after which an object is at rest.
const rest = 2*time.Minute + time.Second

var restingPods = &event.Resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}}

// restingPod returns a pod of some 4 KB, whose place of spec and status is known.
func restingPod(t testing.TB, i, version int) *event.Object {
	t.Helper()
	text := fmt.Sprintf(`{"metadata":{"namespace":"ns%d","name":"p%d","uid":"u%d","resourceVersion":"%d","annotations":{"users":"u%d"},"ownerReferences":[{"uid":"o%d"}]},"spec":{"nodeName":"n%d"`,
		i%3, i, i, version, i%5, i%7, i%10)
	for field := range 50 {
		text += fmt.Sprintf(`,"field%d":{"name":"a name of some length","values":["one","two",{"three":%d}]}`, field, i*field)
	}
	text += fmt.Sprintf(`},"status":{"phase":"Running","n":%d}}`, i)
	o, err := event.ParseIndexed(restingPods, text, uint32(strings.Index(text, `{"nodeName`)), uint32(strings.Index(text, `{"phase`)))
	must.Succeed(t, err)
	return o
}

// restingFixture returns a fixture with pods, and the pods. With a pace, the size of the store does not matter.
func restingFixture(t *testing.T, n int, pace ...time.Duration) (*fixture, []*event.Object) {
	t.Helper()
	f := newFixture(t, 1, map[string]string{"byNode": "object.spec.nodeName", "byUser": `object.metadata.annotations["users"]`})
	if len(pace) == 2 {
		f.stores[0].SetPace(pace[0], pace[1], 0)
	}
	var all []*event.Object
	for i := range n {
		all = append(all, restingPod(t, i, i))
		f.stores[0].Put(all[i])
	}
	return f, all
}

// atRest reports whether the store keeps an object in compressed form: it then makes a copy for
// each reader.
func atRest(s *index.Store, o *event.Object) bool {
	first := s.Get(o.Key())
	return first != s.Get(o.Key())
}

// sameText reports whether two objects are the same to every reader.
func sameText(a, b *event.Object) bool {
	return a != nil && b != nil && a.Same(b) && string(a.JSON()) == string(b.JSON()) && a.Resource() == b.Resource() &&
		a.Place("spec") == b.Place("spec") && a.Place("status") == b.Place("status")
}

// heap returns the bytes in use.
func heap() int64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.GC() // pools
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}
