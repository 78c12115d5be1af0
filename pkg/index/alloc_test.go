//go:build !race

package index_test

import (
	"fmt"
	"testing"

	"github.com/deltarouter/deltarouter/pkg/index"
)

// TestLookupAllocates: a look-up allocates its result only, and a count does not allocate.
func TestLookupAllocates(t *testing.T) {
	f := newFixture(t, 2, map[string]string{"byNode": "object.spec.nodeName"})
	for i := range 1000 {
		f.stores[i%2].Put(pod(t, "ns", fmt.Sprintf("p%d", i), "", fmt.Sprintf(`,"spec":{"nodeName":"n%d"}`, i%10)))
	}
	for _, c := range []struct {
		what  string
		most  float64
		found int
		do    func() int
	}{
		{"look-up", 1, 100, func() int { return len(f.catalog.Lookup("pods", "byNode", "n3")) }},
		{"look-up of nothing", 0, 0, func() int { return len(f.catalog.Lookup("pods", "byNode", "none")) }},
		{"built-in look-up", 1, 1000, func() int { return len(f.catalog.Lookup("pods", index.ByNamespace, "ns")) }},
		{"count", 0, 100, func() int { return f.catalog.Count("pods", "byNode", "n3") }},
	} {
		if found := c.do(); found != c.found {
			t.Errorf("%s: %d objects, want %d", c.what, found, c.found)
		}
		if got := testing.AllocsPerRun(100, func() { c.do() }); got > c.most {
			t.Errorf("%s: %v allocations, want %v", c.what, got, c.most)
		}
	}
}

// BenchmarkPut updates an object of 5 KB with four indexes.
func BenchmarkPut(b *testing.B) {
	f := newFixture(b, 1, map[string]string{
		"byNode": "object.spec.nodeName", "byNsApp": `object.metadata.namespace + "/" + object.metadata.labels["app"]`,
		"byUser": `object.metadata.annotations["users"].split(",")`, "byPhase": "object.status.phase",
	})
	filler := ""
	for i := range 60 {
		filler += fmt.Sprintf(`,"field%d":{"name":"a name of some length","values":["one","two",{"three":3}]}`, i)
	}
	a := pod(b, "ns", "p", users("ernie,bert")+`,"labels":{"app":"web"}`, `,"spec":{"x":1`+filler+`,"nodeName":"n1"},"status":{"phase":"Running"}`)
	z := pod(b, "ns", "p", users("ernie,bert")+`,"labels":{"app":"api"}`, `,"spec":{"x":1`+filler+`,"nodeName":"n2"},"status":{"phase":"Running"}`)
	b.ReportAllocs()
	for b.Loop() {
		f.stores[0].Put(a)
		f.stores[0].Put(z)
	}
}
