package e2e

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// team is a group of namespaces that the label team=NAME selects.
type team struct {
	t    *testing.T
	s    *sandboxtest.Sandbox
	name string
	seen int // the number of events that were expected so far
}

func newTeam(t *testing.T, s *sandboxtest.Sandbox) *team {
	t.Helper()
	return &team{t: t, s: s, name: "team-" + strings.ToLower(rand.Text()[:12])}
}

func (g *team) namespaces() routertest.Objects {
	return routertest.Use(g.t, g.s, schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, "")
}

// space returns the name of a namespace of this test.
func (g *team) space(name string) string { return g.name + "-" + name }

// begin makes a namespace.
func (g *team) begin(name string, selected bool) {
	g.t.Helper()
	labels := map[string]any{}
	if selected {
		labels["team"] = g.name
	}
	g.namespaces().Make(&unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": g.space(name), "labels": labels},
	}})
	g.t.Cleanup(func() {
		// An error is ignored: the namespace may be gone.
		_ = g.s.Dynamic().Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}).Delete(
			context.WithoutCancel(g.t.Context()), g.space(name), metav1.DeleteOptions{})
	})
}

// enter and leave change whether a namespace is selected.
func (g *team) enter(name string) {
	g.t.Helper()
	g.namespaces().Change(g.space(name), fmt.Sprintf(`{"metadata":{"labels":{"team":%q}}}`, g.name))
}

func (g *team) leave(name string) {
	g.t.Helper()
	g.namespaces().Change(g.space(name), `{"metadata":{"labels":{"team":null}}}`)
}

func (g *team) end(name string) { g.t.Helper(); g.namespaces().Remove(g.space(name)) }

// maps are the ConfigMaps in a namespace.
func (g *team) maps(name string) routertest.Objects {
	return routertest.Use(g.t, g.s, routertest.ConfigMaps, g.space(name))
}

func (g *team) put(name string) {
	g.t.Helper()
	g.maps(name).Make(routertest.ConfigMap("m", "1"))
}

func (g *team) change(name, value string) {
	g.t.Helper()
	g.maps(name).Change("m", fmt.Sprintf(`{"data":{"value":%q}}`, value))
}

// want is the event of a change of the ConfigMap in a namespace.
func (g *team) want(op, name string) string { return "all " + op + " " + g.space(name) + "/m" }

// expect waits for the next events, in any order, and returns them. There must be no others.
func (g *team) expect(r *routertest.Router, want ...string) []routertest.Event {
	g.t.Helper()
	r.Wait(g.t, fmt.Sprint(want), func(events []routertest.Event) bool { return len(events) >= g.seen+len(want) })
	events := r.Events()[g.seen:]
	g.seen += len(events)
	got := routertest.Summary(events)
	slices.Sort(got)
	slices.Sort(want)
	routertest.Exactly(g.t, got, want)
	return events
}

const followed = `
sources:
  maps: {resource: v1/configmaps, namespaceSelector: team=TEAM, indexes: {byValue: object.data.value}}
sinks: {out: {stdout: {}}}
routes:
  - {name: all, from: maps, ops: [added, updated, deleted, deselected], to: out}
`

func (g *team) install(config string) (file string) {
	g.t.Helper()
	return routertest.InstallAPI(g.t, g.s.Kubeconfig(), strings.ReplaceAll(config, "TEAM", g.name))
}

// TestNamespaceSelector: a source with a namespaceSelector follows the namespaces. Objects in a
// namespace that becomes selected are added, also those that are created together with it; those in
// one that leaves are deselected; and a deleted namespace takes its objects along as deleted.
func TestNamespaceSelector(t *testing.T) {
	// Guarantee: namespace-selector
	t.Parallel()
	g := newTeam(t, sandboxtest.Start(t))
	g.begin("a", true)
	g.begin("b", false)
	g.put("a") // exists before the start
	g.put("b")
	file := g.install(followed)
	r := routertest.StartFile(t, file)
	r.Ready(t)

	g.change("b", "2") // not selected
	g.change("a", "2")
	g.expect(r, g.want("updated", "a"))
	g.enter("b")
	g.expect(r, g.want("added", "b"))
	g.change("b", "3")
	g.expect(r, g.want("updated", "b"))
	out, _ := routertest.Control(t, file, "get", "maps", "-n", g.space("b"), "-o", "name")
	if !strings.Contains(out, "m") {
		t.Errorf("router get -n shows %q", out)
	}
	if out, _ = routertest.Control(t, file, "get"); !strings.Contains(out, "2 with team="+g.name) {
		t.Errorf("router get shows %q, want two namespaces", out)
	}
	if status := r.Status(t); !regexp.MustCompile(`(?m)^maps +2$`).MatchString(status) {
		t.Errorf("status %s, want two namespaces", status)
	}

	if out, _ = routertest.Control(t, g.install(strings.ReplaceAll(followed, "team=", "item=")), "check", "-connect"); !strings.Contains(out, "no namespace has these labels now") {
		t.Errorf("check -connect shows %q of a selector of nothing", out)
	}
	if out, _ = routertest.Control(t, file, "check", "-connect"); strings.Contains(out, "no namespace has these labels now") {
		t.Errorf("check -connect shows %q of a selector of two namespaces", out)
	}

	// The object is created at once, before the router can know of the namespace.
	var want []string
	for i := range 10 {
		name := fmt.Sprint("new", i)
		g.begin(name, true)
		g.put(name)
		want = append(want, g.want("added", name))
	}
	g.expect(r, want...)

	g.leave("b")
	g.expect(r, g.want("deselected", "b"))
	g.change("b", "4")
	if out, _ = routertest.Control(t, file, "get", "maps", "-n", g.space("b"), "-o", "name"); strings.Contains(out, "m") {
		t.Errorf("router get -n shows %q of a namespace that has left", out)
	}
	g.enter("b")
	events := g.expect(r, g.want("added", "b"))
	if !strings.Contains(string(events[0].Data), `"4"`) {
		t.Errorf("the added object is %s, want its latest state", events[0].Data)
	}

	g.end("new0")
	events = g.expect(r, g.want("deleted", "new0"))
	if strings.Contains(string(events[0].Data), `"stale":true`) {
		t.Errorf("the delete in a deleted namespace was inferred: %s", events[0].Data)
	}
	g.change("a", "5")
	g.expect(r, g.want("updated", "a"))
}

// TestNamespacesAfterRestart: changes of the namespaces while the router is down are followed at
// its start, and no object is repeated. The resource is not listed as a whole, unless the history
// was dropped meanwhile.
func TestNamespacesAfterRestart(t *testing.T) {
	// Guarantee: namespace-selector
	t.Parallel()
	for _, compacted := range []bool{false, true} { // without it the router is killed
		t.Run(fmt.Sprintf("compacted=%t", compacted), func(t *testing.T) {
			s := sandboxtest.Start(t)
			if compacted {
				s = sandboxtest.Borrow(t)
			}
			g := newTeam(t, s)
			for _, name := range []string{"stays", "leaves", "ends", "enters"} {
				g.begin(name, name != "enters")
				g.put(name)
			}
			file := g.install(followed)
			r := routertest.StartFile(t, file)
			r.Ready(t)
			g.begin("late", true)
			g.put("late")
			g.expect(r, g.want("added", "late"))
			r.Saved(t)
			if !compacted {
				r.Kill(t)
			} else if code := r.Stop(t); code != 0 {
				t.Fatalf("exit code %d", code)
			}
			g.change("stays", "2")
			g.leave("leaves")
			g.end("ends")
			g.enter("enters")
			g.begin("new", true)
			g.put("new")
			routertest.Poll(t, "the namespace to be gone", func() bool { return !exists(t, g.namespaces(), g.space("ends")) })
			if compacted {
				s.CompactEtcd(t)
				s.StopAPIServer(t)
				s.StartAPIServer(t)
			}
			before := routertest.Lists(t, s, "configmaps", g.name)
			r = routertest.StartFile(t, file)
			g.seen = 0
			g.expect(r, g.want("updated", "stays"), g.want("deselected", "leaves"), g.want("deleted", "ends"),
				g.want("added", "enters"), g.want("added", "new"))
			g.change("late", "2")
			g.change("new", "2")
			g.expect(r, g.want("updated", "late"), g.want("updated", "new"))
			// Two new namespaces are listed.
			if n := routertest.Lists(t, s, "configmaps", g.name) - before; !compacted && n > 3 {
				t.Errorf("%d lists", n)
			}
		})
	}
}

// TestNamespaceSelectorReloaded: another selector is another watch. The objects of the former one
// are forgotten without a delta, and those of the new one exist already.
func TestNamespaceSelectorReloaded(t *testing.T) {
	t.Parallel()
	g := newTeam(t, sandboxtest.Start(t))
	g.begin("a", true)
	g.begin("b", false)
	g.namespaces().Change(g.space("b"), `{"metadata":{"labels":{"other":`+fmt.Sprintf("%q", g.name)+`}}}`)
	g.put("a")
	g.put("b")
	file := g.install(followed)
	text, err := os.ReadFile(filepath.Clean(file))
	must.Succeed(t, err)
	r := routertest.StartFile(t, file)
	r.Ready(t)
	r.Reload(t, file, strings.ReplaceAll(string(text), "team="+g.name, "other="+g.name), true)
	r.Ready(t)
	g.change("a", "2")
	g.change("b", "2")
	g.expect(r, g.want("updated", "b"))
	r.Reload(t, file, string(text), true)
	r.Ready(t)
	g.change("b", "3")
	g.change("a", "3")
	g.expect(r, g.want("updated", "a"))
}

// TestNamespacesForbidden: a router that may not watch namespaces names the reason, and begins once
// it may.
func TestNamespacesForbidden(t *testing.T) {
	t.Parallel()
	s := sandboxtest.Start(t).WithUser(t)
	g := newTeam(t, s)
	g.begin("a", true)
	g.put("a")
	s.Grant(t, "", "", []string{"configmaps"}, []string{"get", "list", "watch"})
	r := routertest.StartFile(t, routertest.InstallAPI(t, s.LimitedKubeconfig(), strings.ReplaceAll(followed, "TEAM", g.name)))
	routertest.Poll(t, "the reason", func() bool {
		return strings.Contains(r.Status(t), `sources/maps: `) && strings.Contains(r.Status(t), `cannot watch resource "namespaces"`)
	})
	s.Grant(t, "", "", []string{"namespaces"}, []string{"get", "list", "watch"})
	routertest.Poll(t, "the namespace", func() bool { return regexp.MustCompile(`(?m)^maps +1$`).MatchString(r.Status(t)) })
	r.Ready(t)
	g.change("a", "2")
	g.expect(r, g.want("updated", "a"))
}
