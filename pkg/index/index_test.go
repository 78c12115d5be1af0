package index_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"pgregory.net/rapid"

	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/index"
	"github.com/deltarouter/deltarouter/test/leaks"
	"github.com/deltarouter/deltarouter/test/must"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// fixture is a source "pods" with the given indexes, and its log.
type fixture struct {
	catalog *index.Catalog
	stores  []*index.Store
	metrics *metrics.Metrics
	log     bytes.Buffer
	specs   []index.Spec
	byName  map[string]index.Spec
}

func newFixture(t testing.TB, stores int, indexes map[string]string) *fixture {
	t.Helper()
	f := &fixture{catalog: index.NewCatalog(), metrics: metrics.New()}
	env, err := cel.NewEnv(cel.EnvConfig{Cluster: "test", Sources: map[string][]string{"pods": index.Builtins()}})
	must.Succeed(t, err)
	specs := make(map[string]index.Spec)
	var all []index.Spec
	for name, text := range indexes {
		program, err := env.Compile(text, cel.Index, "pods")
		must.Succeed(t, err)
		specs[name] = index.NewSpec([]string{text}, []*cel.Program{program},
			f.metrics.IndexErrors.WithLabelValues("pods", name), slog.New(slog.NewTextHandler(&f.log, nil)), name)
		all = append(all, specs[name])
	}
	for range stores {
		f.stores = append(f.stores, index.NewStore(all...))
	}
	f.specs, f.byName = all, specs
	f.catalog.Add("pods", f.stores, specs)
	return f
}

// pod parses {"metadata":{"namespace":ns,"name":name,…},…} from the rest of metadata and of the
// object.
func pod(t testing.TB, ns, name, metadata, rest string) *event.Object {
	t.Helper()
	o, err := event.ParseObject(&event.Resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}},
		fmt.Sprintf(`{"metadata":{"namespace":%q,"name":%q%s}%s}`, ns, name, metadata, rest))
	must.Succeed(t, err)
	return o
}

func (f *fixture) find(name, value string) []string {
	names := []string{}
	for _, o := range f.catalog.Lookup("pods", name, value) {
		names = append(names, o.Key().Name)
	}
	return names
}

func users(list string) string { return fmt.Sprintf(`,"annotations":{"users":%q}`, list) }

// TestByUser is the example of client-go's documentation.
func TestByUser(t *testing.T) {
	f := newFixture(t, 1, map[string]string{"byUser": `object.metadata.annotations["users"].split(",")`})
	f.stores[0].Put(pod(t, "default", "one", users("ernie,bert"), ""))
	f.stores[0].Put(pod(t, "default", "two", users("bert,oscar"), ""))
	f.stores[0].Put(pod(t, "default", "three", users("ernie,elmo"), ""))
	if got := f.find("byUser", "ernie"); !slices.Equal(got, []string{"one", "three"}) {
		t.Errorf("ernie has %q, want one and three", got)
	}
	if got := f.catalog.Count("pods", "byUser", "bert"); got != 2 {
		t.Errorf("bert has %d pods, want 2", got)
	}
}

func TestChangesMoveEntries(t *testing.T) {
	f := newFixture(t, 1, map[string]string{"byNode": "object.spec.nodeName"})
	s := f.stores[0]
	s.Put(pod(t, "default", "a", "", `,"spec":{"nodeName":"n1"}`))
	s.Put(pod(t, "default", "a", "", `,"spec":{"nodeName":"n2"}`))
	if n1, n2 := f.find("byNode", "n1"), f.find("byNode", "n2"); len(n1) != 0 || len(n2) != 1 {
		t.Errorf("after the move: n1 has %q, n2 has %q", n1, n2)
	}
	s.Delete(event.Key{Namespace: "default", Name: "a"})
	s.Delete(event.Key{Namespace: "default", Name: "never there"})
	if got := f.find("byNode", "n2"); len(got) != 0 || s.Len() != 0 || s.Bytes() != 0 {
		t.Errorf("after the delete: %q, %d objects, %d bytes", got, s.Len(), s.Bytes())
	}
}

// TestReindex: new indexes are built from the objects beside the old ones, which a catalog
// continues to show unchanged.
func TestReindex(t *testing.T) {
	old := newFixture(t, 1, map[string]string{"byNode": "object.spec.nodeName"})
	s := old.stores[0]
	for _, name := range []string{"a", "b", "c"} {
		s.Put(pod(t, "default", name, "", `,"spec":{"nodeName":"n1"}`))
	}
	if s.Reindex(old.specs...) != nil {
		t.Error("the same indexes are built again")
	}
	wanted := newFixture(t, 0, map[string]string{"byNode": "object.spec.nodeName", "byPhase": "object.status.phase"})
	swap := s.Reindex(wanted.specs...)
	s.Delete(event.Key{Namespace: "default", Name: "a"}) // before the exchange
	s.Put(pod(t, "default", "b", "", `,"spec":{"nodeName":"n2"},"status":{"phase":"Failed"}`))
	s.Put(pod(t, "default", "d", "", `,"spec":{"nodeName":"n1"},"status":{"phase":"Failed"}`))
	if got := old.find("byNode", "n1"); !slices.Equal(got, []string{"c", "d"}) {
		t.Errorf("before the swap n1 has %q", got)
	}
	swap()
	wanted.catalog.Add("pods", old.stores, wanted.byName)
	s.Put(pod(t, "default", "e", "", `,"spec":{"nodeName":"n1"},"status":{"phase":"Failed"}`))
	for _, c := range []struct {
		got  []string
		want []string
	}{
		{wanted.find("byNode", "n1"), []string{"c", "d", "e"}},
		{wanted.find("byPhase", "Failed"), []string{"b", "d", "e"}},
		{wanted.find("", ""), []string{"b", "c", "d", "e"}},
		{old.find("byNode", "n1"), []string{"c", "d"}}, // unchanged
	} {
		if !slices.Equal(c.got, c.want) {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
	if s.Len() != 4 || wanted.catalog.Count("pods", "", "") != 4 || old.catalog.Count("pods", "", "") != 3 {
		t.Errorf("%d objects", s.Len())
	}
}

// TestFailingExpression: an expression that fails indexes nothing. The failure is counted, and
// logged once without the object.
func TestFailingExpression(t *testing.T) {
	// Guarantee: index-failure
	f := newFixture(t, 1, map[string]string{"byNode": "object.spec.nodeName"})
	for i := range 3 {
		f.stores[0].Put(pod(t, "default", fmt.Sprintf("p%d", i), users("canary"), `,"spec":{}`))
	}
	f.stores[0].Put(pod(t, "default", "bad", "", `,"spec":{"nodeName":[{"canary":1}]}`))
	f.stores[0].Put(pod(t, "default", "good", "", `,"spec":{"nodeName":"n1"}`))
	if got := testutil.ToFloat64(f.metrics.IndexErrors.WithLabelValues("pods", "byNode")); got != 4 {
		t.Errorf("%v failures counted, want 4", got)
	}
	if got := f.find("byNode", "n1"); !slices.Equal(got, []string{"good"}) {
		t.Errorf("n1 has %q", got)
	}
	if log := f.log.String(); strings.Count(log, "\n") != 1 || strings.Contains(log, "canary") || !strings.Contains(log, "default/p0") {
		t.Errorf("the log is %q", log)
	}
}

func TestBuiltins(t *testing.T) {
	f := newFixture(t, 2, nil)
	f.stores[0].Put(pod(t, "a", "x", `,"ownerReferences":[{"uid":"u1"},{"uid":"u2"}]`, ""))
	f.stores[1].Put(pod(t, "b", "x", `,"ownerReferences":[{"uid":"u2"}]`, ""))
	f.stores[1].Put(pod(t, "b", "y", "", ""))
	for _, c := range []struct {
		index, value string
		want         []string
	}{
		{index.ByName, "x", []string{"x", "x"}},
		{index.ByNamespace, "b", []string{"x", "y"}},
		{index.ByOwner, "u1", []string{"x"}},
		{index.ByOwner, "u2", []string{"x", "x"}},
		{"", "", []string{"x", "x", "y"}}, // all
		{"unknown", "x", []string{}},
	} {
		if got := f.find(c.index, c.value); !slices.Equal(got, c.want) {
			t.Errorf("%s=%s: got %q, want %q", c.index, c.value, got, c.want)
		}
		if got := f.catalog.Count("pods", c.index, c.value); got != len(c.want) {
			t.Errorf("%s=%s: count is %d, want %d", c.index, c.value, got, len(c.want))
		}
	}
	// A built-in index also contains objects that are added after its first use.
	f.stores[0].Put(pod(t, "a", "z", "", ""))
	if got := f.find(index.ByName, "z"); len(got) != 1 {
		t.Errorf("an object that came later: %q", got)
	}
	if f.catalog.Get("pods", "b", "y") == nil || f.catalog.Get("pods", "a", "y") != nil || f.catalog.Get("unknown", "a", "x") != nil {
		t.Error("Get found the wrong thing")
	}
}

func TestEqualExpressionsShareAnIndex(t *testing.T) {
	f := newFixture(t, 1, map[string]string{"one": "object.metadata.name", "same": "object.metadata.name"})
	f.stores[0].Put(pod(t, "default", "a", "", ""))
	if one, same := f.find("one", "a"), f.find("same", "a"); len(one) != 1 || len(same) != 1 {
		t.Errorf("got %q and %q", one, same)
	}
}

// TestAgainstAModel: after any sequence of changes, an index contains exactly the objects that a
// scan finds.
func TestAgainstAModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		f := newFixture(t, 1, map[string]string{"byUser": `object.metadata.annotations["users"].split(",")`})
		s, model := f.stores[0], make(map[string]string) // name → users
		for range rapid.IntRange(1, 50).Draw(rt, "steps") {
			name := rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(rt, "name")
			if rapid.Bool().Draw(rt, "delete") {
				s.Delete(event.Key{Namespace: "ns", Name: name})
				delete(model, name)
				continue
			}
			list := strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"u", "v", "w"}), 1, 3).Draw(rt, "users"), ",")
			s.Put(pod(t, "ns", name, users(list), ""))
			model[name] = list
		}
		for _, user := range []string{"u", "v", "w"} {
			want := []string{}
			for name, list := range model {
				if slices.Contains(strings.Split(list, ","), user) {
					want = append(want, name)
				}
			}
			slices.Sort(want)
			if got := f.find("byUser", user); !slices.Equal(got, want) {
				rt.Fatalf("%s has %q, want %q", user, got, want)
			}
		}
		size := 0
		for o := range s.All() {
			size += o.Size()
		}
		if s.Len() != len(model) || s.Bytes() != int64(size) {
			rt.Fatalf("%d objects of %d bytes, want %d of %d", s.Len(), s.Bytes(), len(model), size)
		}
	})
}

// TestPrepare: objects that several goroutines prepared are found like objects that were put.
func TestPrepare(t *testing.T) {
	f := newFixture(t, 2, map[string]string{"byNode": "object.spec.nodeName"})
	puts := make(chan func(), 100)
	for i := range cap(puts) {
		o := pod(t, "ns", fmt.Sprintf("p%d", i), "", fmt.Sprintf(`,"spec":{"nodeName":"n%d"}`, i%7))
		f.stores[0].Put(o)
		go func() { puts <- f.stores[1].Prepare(o) }()
	}
	for range cap(puts) {
		(<-puts)()
	}
	if a, b := f.stores[0], f.stores[1]; a.Len() != b.Len() || a.Bytes() != b.Bytes() {
		t.Errorf("%d objects of %d bytes, want %d of %d", b.Len(), b.Bytes(), a.Len(), a.Bytes())
	}
	if n := f.catalog.Count("pods", "byNode", "n3"); n != 2*14 {
		t.Errorf("%d pods on n3, want 14 in each store", n)
	}
}
