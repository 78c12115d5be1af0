package index_test

import (
	"fmt"
	"math"
	"runtime"
	"testing"
	"unsafe"
	"weak"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/index"
	"github.com/deltarouter/deltarouter/test/must"
)

// tracedPod returns a pod on a node, and a weak pointer to its text.
func tracedPod(t *testing.T, name, node string) (*event.Object, weak.Pointer[byte]) {
	t.Helper()
	text := fmt.Appendf(nil, `{"metadata":{"name":%q},"spec":{"nodeName":%q}}`, name, node)
	o, err := event.ParseObject(&event.Resource{}, unsafe.String(unsafe.SliceData(text), len(text)))
	must.Succeed(t, err)
	return o, weak.Make(unsafe.SliceData(text))
}

// TestReplacedTextIsFreed: an object that was replaced or deleted needs no memory, although others
// have the index values that it had first.
func TestReplacedTextIsFreed(t *testing.T) {
	f := newFixture(t, 1, map[string]string{"byNode": "object.spec.nodeName", "byBoth": `[object.spec.nodeName, object.metadata.name]`})
	var texts []weak.Pointer[byte]
	for _, name := range []string{"a", "a", "b", "c"} {
		o, text := tracedPod(t, name, "n1")
		f.stores[0].Put(o)
		texts = append(texts, text)
	}
	f.stores[0].Delete(event.Key{Name: "b"})
	runtime.GC()
	for i, kept := range []bool{false, true, false, true} {
		if (texts[i].Value() != nil) != kept {
			t.Errorf("text %d is kept: %t, want %t", i, !kept, kept)
		}
	}
	if got := f.catalog.Count("pods", "byNode", "n1"); got != 2 {
		t.Errorf("%d pods on the node, want 2", got)
	}
	runtime.KeepAlive(f)
}

// TestSharedValues: objects with equal values share them; an object of a node takes no more memory
// for its indexes than its entries in the maps.
func TestSharedValues(t *testing.T) {
	f := newFixture(t, 1, map[string]string{"byNode": "object.spec.nodeName"})
	first := pod(t, "", "first", "", `,"spec":{"nodeName":"n1"}`)
	f.stores[0].Put(first)
	second := pod(t, "", "second", "", `,"spec":{"nodeName":"n1"}`)
	fewest := math.Inf(1)
	for range 100 { // with the race detector, a sync.Pool drops some of its items
		fewest = min(fewest, testing.AllocsPerRun(1, func() { f.stores[0].Put(second) }))
	}
	if fewest > 2 {
		t.Errorf("%v allocations for an object with known values, want 2: its entry and its key", fewest)
	}
	third := pod(t, "", "third", "", `,"spec":{"nodeName":"n2"}`)
	f.stores[0].Put(third)
	if n1, n2 := f.find("byNode", "n1"), f.find("byNode", "n2"); len(n1) != 2 || len(n2) != 1 || f.catalog.Has("pods", index.ByName, "x", third) {
		t.Errorf("n1 has %q, n2 has %q", n1, n2)
	}
}
