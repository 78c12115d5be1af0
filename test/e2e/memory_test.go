package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/deltarouter/deltarouter/test/built"
	"github.com/deltarouter/deltarouter/test/effort"
	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// counted is the output of the counter in testdata for an object.
type counted struct{ N, Same int }

// counter is a cluster, and a configuration with the counter in it.
type counter struct {
	routertest.Objects

	ns, head, module string
}

func newCounter(t *testing.T) counter {
	t.Helper()
	s := sandboxtest.Start(t)
	c := counter{ns: s.Namespace(t), module: built.Module(t, filepath.Join("testdata", "counter"))}
	c.Objects = routertest.Use(t, s, routertest.ConfigMaps, c.ns)
	c.head = fmt.Sprintf("version: 1\ncluster: {name: test, kubeconfig: %q}\nstate: {dir: %q}\nlisten: {probes: \"127.0.0.1:0\"}\nsinks: {out: {stdout: {}}}\n",
		s.Kubeconfig(), filepath.Join(t.TempDir(), "state"))
	return c
}

// config returns a configuration with the counter, with the expression as its index.
func (c counter) config(index string) string {
	return c.head + fmt.Sprintf(`
sources: {maps: {resource: v1/configmaps, namespaces: %s, indexes: {byValue: '%s'}}}
handlers: {counter: {wasm: {module: %q, allow: {kv: true, lookup: maps.byValue}}}}
routes:
  - {name: counts, from: maps, handler: counter, filter: object.metadata.name.startsWith("c"), to: out}
`, c.ns, index, c.module)
}

// without returns a configuration without the counter.
func (c counter) without() string {
	return c.head + fmt.Sprintf("sources: {maps: {resource: v1/configmaps, namespaces: %s}}\nroutes: [{name: other, from: maps, to: out}]\n", c.ns)
}

// count waits for the event about an object's version and returns its counts.
func (c counter) count(t *testing.T, r *routertest.Router, name, version string) (last counted) {
	t.Helper()
	r.Wait(t, "the count of "+name+" at "+version, func(events []routertest.Event) bool {
		for _, e := range routertest.About(events, c.ns+"/"+name) {
			if e.Route == "counts" && e.K8sResourceVersion == version {
				return json.Unmarshal(e.Data, &last) == nil
			}
		}
		return false
	})
	return last
}

func (c counter) set(name, value string) (version string) {
	return c.Change(name, fmt.Sprintf(`{"data":{"value":%q}}`, value))
}

// TestHandlersRemember shows that the values of a handler survive a restart, a reload that reopens
// it, and a reload that removes it for a while, and that its look-ups follow the present
// configuration.
func TestHandlersRemember(t *testing.T) {
	// Guarantee: kv-kept
	t.Parallel()
	c := newCounter(t)
	const byValue, byOther = "object.data.value", `object.data.value + "z"`
	file := filepath.Join(t.TempDir(), "config.yaml")
	must.Succeed(t, os.WriteFile(file, []byte(c.config(byValue)), 0o600))
	expect := func(r *routertest.Router, version string, want counted) {
		t.Helper()
		if got := c.count(t, r, "c1", version); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	r := routertest.StartFile(t, file)
	r.Ready(t)
	c.Make(routertest.ConfigMap("other", "x"))
	expect(r, c.Make(routertest.ConfigMap("c1", "x")).GetResourceVersion(), counted{1, 2})
	expect(r, c.set("c1", "y"), counted{2, 1})

	if code := r.Stop(t); code != 0 {
		t.Fatalf("it ended with %d", code)
	}
	r = routertest.StartFile(t, file)
	r.Ready(t)
	expect(r, c.set("c1", "x"), counted{3, 2})

	r.Reload(t, file, c.config(byOther), true) // the handler is not reopened
	expect(r, c.set("c1", "xz"), counted{4, 1})
	// it is reopened for more workers
	r.Reload(t, file, c.config(byValue)+"  - {name: more, from: maps, handler: counter, filter: object.metadata.name == \"d\", to: out}\n", true)
	expect(r, c.set("c1", "x"), counted{5, 2})
	r.Reload(t, file, c.without(), true)
	r.Reload(t, file, c.config(byValue), true)
	expect(r, c.set("c1", "y"), counted{6, 1})
}

// TestHandlersRememberKill shows that after a SIGKILL either the values that a handler wrote about
// a delta exist, or the delta is repeated.
func TestHandlersRememberKill(t *testing.T) {
	// Guarantee: kv-ahead
	t.Parallel()
	c := newCounter(t)
	file := filepath.Join(t.TempDir(), "config.yaml")
	must.Succeed(t, os.WriteFile(file, []byte(c.config("object.data.value")), 0o600))
	const objects = 10
	kills := effort.Rounds(2, 4, 40)
	seen := make(map[string]map[string]bool) // delivered versions by object
	for i := range objects {
		name := fmt.Sprintf("c%d", i)
		seen[name] = make(map[string]bool)
	}
	note := func(r *routertest.Router) {
		for name, versions := range seen {
			for _, e := range routertest.About(r.Events(), c.ns+"/"+name) {
				versions[e.K8sResourceVersion] = true
			}
		}
	}
	r := routertest.StartFile(t, file)
	r.Ready(t)
	for name := range seen {
		c.Make(routertest.ConfigMap(name, "0"))
	}
	for kill := range kills {
		last := ""
		for k := range 3 {
			for i := range objects {
				last = c.set(fmt.Sprintf("c%d", i), fmt.Sprintf("%d.%d", kill, k))
			}
			if k == 1 {
				r.Saved(t) // some deliveries are complete on disk and some are not
			}
		}
		if kill%2 == 0 {
			c.count(t, r, fmt.Sprintf("c%d", objects-1), last)
		}
		r.Kill(t)
		note(r)
		r = routertest.StartFile(t, file)
		r.Ready(t)
	}
	for name, versions := range seen {
		got := c.count(t, r, name, c.set(name, "end"))
		note(r)
		if got.N < len(versions) {
			t.Errorf("%s: %d versions were delivered, and %d counted", name, len(versions), got.N)
		}
	}
}
