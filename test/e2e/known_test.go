package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/informer"
	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// rewrite replaces the part of a configuration behind the head that Install wrote, while no router
// runs.
func rewrite(t *testing.T, file, from, to string) {
	t.Helper()
	text, err := os.ReadFile(file)
	must.Succeed(t, err)
	head, _, found := strings.Cut(string(text), from)
	if !found {
		t.Fatalf("%s has no %q", file, from)
	}
	must.Succeed(t, os.WriteFile(file, []byte(head+to), 0o600))
}

// TestRouteAddedWhileDown adds a route with existing: deliver to the file while the router is down.
// It must get all existing objects first, then the changes meanwhile, once each, even after a
// SIGKILL before any of it is saved.
func TestRouteAddedWhileDown(t *testing.T) {
	// Guarantee: new-route
	t.Parallel()
	s, ns := sandboxtest.StartNamespace(t)
	m := routertest.Use(t, s, routertest.ConfigMaps, ns)
	for _, name := range []string{"a", "b", "gone"} {
		m.Make(routertest.ConfigMap(name, "1"))
	}
	h := newHook(t)
	h.answer(http.StatusServiceUnavailable)
	sources := fmt.Sprintf("sources: {maps: {resource: v1/configmaps, namespaces: %s}}\nsinks: {out: {stdout: {}}, hook: {webhook: {url: %q}}}\nroutes:\n", ns, h.URL)
	const all = "  - {name: all, from: maps, existing: deliver, to: out}\n"
	const added = `  - {name: late, from: maps, existing: deliver, to: out}
  - {name: skips, from: maps, to: out}
  - {name: hooked, from: maps, existing: deliver, to: hook, retry: {backoff: 1ms, max: 20ms}}
`
	n := ns + "/"
	file := routertest.Install(t, s.Kubeconfig(), sources+all)
	r := routertest.StartFile(t, file)
	r.Expect(t, "all added "+n+"a", "all added "+n+"b", "all added "+n+"gone")
	if code := r.Stop(t); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	rewrite(t, file, "sources:", sources+all+added)
	m.Remove("gone")
	m.Make(routertest.ConfigMap("new", "1"))

	r = routertest.StartFile(t, file)
	r.Wait(t, "anything", func(events []routertest.Event) bool { return len(events) > 0 })
	r.Kill(t) // most likely before the first cut
	r = routertest.StartFile(t, file)
	r.Ready(t)
	r.Saved(t)
	m.Make(routertest.ConfigMap("mark", "1"))
	r.Expect(t, "all added "+n+"mark", "late added "+n+"mark", "skips added "+n+"mark")
	h.answer(http.StatusOK)
	routertest.Poll(t, "all that is owed", func() bool { return h.count() >= 6 })
	var got []string
	for _, e := range h.events(t) {
		got = append(got, strings.TrimPrefix(e.Type, "io.deltarouter.")+" "+strings.TrimPrefix(e.Subject, n))
		if initial := strings.Contains(string(e.Data), `"initial":true`); initial != slices.Contains([]string{n + "a", n + "b", n + "gone"}, e.Subject) &&
			e.Type == "io.deltarouter.added" {
			t.Errorf("%s of %s: initial is %v", e.Type, e.Subject, initial)
		}
	}
	routertest.Exactly(t, got, []string{"added a", "added b", "added gone", "deleted gone", "added new", "added mark"})
	for _, e := range r.Events() {
		if e.Route == "skips" && e.Subject != n+"mark" && e.Subject != n+"new" && e.Type == "io.deltarouter.added" {
			t.Errorf("a route without existing: deliver got %s", e)
		}
	}
	r.Saved(t)
	r.Kill(t)

	// Now the routes are known.
	r = routertest.StartFile(t, file)
	r.Ready(t)
	m.Remove("mark")
	routertest.Exactly(t, routertest.Summary(r.Expect(t, "all deleted "+n+"mark", "late deleted "+n+"mark", "skips deleted "+n+"mark")),
		[]string{"all deleted " + n + "mark", "late deleted " + n + "mark", "skips deleted " + n + "mark"})
	routertest.Poll(t, "the webhook", func() bool { return h.count() == 7 })
}

// TestSourceChangedWhileDown changes the name or selector of a source while the router is down. The
// source must learn and forget objects without deltas, except for a new route.
func TestSourceChangedWhileDown(t *testing.T) {
	t.Parallel()
	s, ns := sandboxtest.StartNamespace(t)
	m := routertest.Use(t, s, routertest.ConfigMaps, ns)
	m.Make(routertest.ConfigMap("web", "1", "app=web"))
	m.Make(routertest.ConfigMap("db", "1", "app=db"))
	config := func(source, selector, more string) string {
		return fmt.Sprintf(`sources: {%s: {resource: v1/configmaps, namespaces: %s, labelSelector: %s}}
sinks: {out: {stdout: {}}}
routes:
  - {name: all, from: %[1]s, ops: [added, updated, deleted, deselected], existing: deliver, to: out}
`, source, ns, selector) + strings.ReplaceAll(more, "SOURCE", source)
	}
	n := ns + "/"
	file := routertest.Install(t, s.Kubeconfig(), config("maps", "app=web", ""))
	r := routertest.StartFile(t, file)
	r.Expect(t, "all added "+n+"web")
	for i, c := range []struct {
		name, config string
		mark         string // changed when the router runs again
		want         []string
	}{
		{"another name", config("charts", "app=web", ""), "web", nil},
		{"another selector", config("charts", "app=db", ""), "db", nil},
		{
			"both, and a new route", config("maps", "app", "  - {name: late, from: SOURCE, existing: deliver, to: out}\n"), "web",
			[]string{"late added " + n + "web", "late added " + n + "db", "late updated " + n + "web"},
		},
	} {
		r.Ready(t)
		if code := r.Stop(t); code != 0 {
			t.Fatalf("exit code %d", code)
		}
		rewrite(t, file, "sources:", c.config)
		r = routertest.StartFile(t, file)
		r.Ready(t)
		m.Change(c.mark, fmt.Sprintf(`{"data":{"value":"changed-%d"}}`, i))
		want := append(c.want, "all updated "+n+c.mark)
		t.Run(c.name, func(t *testing.T) { routertest.Exactly(t, routertest.Summary(r.Expect(t, want...)), want) })
	}
}

// TestRouteReturns removes a route with a reload and adds it again with another, under its name or,
// with its id, under another name. It must keep its backlog, and not get earlier deltas again.
func TestRouteReturns(t *testing.T) {
	// Guarantee: removed-route
	t.Parallel()
	s, ns := sandboxtest.StartNamespace(t)
	m := routertest.Use(t, s, routertest.ConfigMaps, ns)
	m.Make(routertest.ConfigMap("before", "1"))
	for _, c := range []struct{ name, back string }{
		{"under its name", "{name: owing, REST}"},
		{"under another name", "{name: other, id: owing, REST}"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHook(t)
			full := func(text string) string {
				return strings.ReplaceAll(text, "REST", "from: maps, existing: deliver, to: hook, retry: {backoff: 5ms, max: 20ms}")
			}
			head := fmt.Sprintf("sources: {maps: {resource: v1/configmaps, namespaces: %s}}\nsinks: {out: {stdout: {}}, hook: {webhook: {url: %q}}}\nroutes:\n  - {name: all, from: maps, to: out}\n",
				ns, h.URL)
			file := routertest.Install(t, s.Kubeconfig(), head+full("  - {name: owing, REST}\n"))
			text, err := os.ReadFile(file)
			must.Succeed(t, err)
			top, _, _ := strings.Cut(string(text), "sources:")
			r := routertest.StartFile(t, file)
			routertest.Poll(t, "what is there", func() bool { return h.count() == 1 })
			h.answer(http.StatusServiceUnavailable)
			first, second := "first-"+strings.ReplaceAll(c.name, " ", "-"), "second-"+strings.ReplaceAll(c.name, " ", "-")
			m.Make(routertest.ConfigMap(first, "1"))
			r.Expect(t, "all added "+ns+"/"+first)
			r.Reload(t, file, top+head, true)
			want := []string{ns + "/" + first}
			r.Reload(t, file, top+head+full("  - "+c.back+"\n"), true)
			r.Saved(t)
			r.Kill(t)
			r = routertest.StartFile(t, file)
			r.Ready(t)
			m.Make(routertest.ConfigMap(second, "1"))
			want = append(want, ns+"/"+second)
			h.answer(http.StatusOK)
			routertest.Poll(t, "what is owed", func() bool { return h.count() > len(want) })
			var got []string
			for _, e := range h.events(t)[1:] {
				got = append(got, e.Subject)
			}
			routertest.Exactly(t, got, want)
			m.Remove(first)
			m.Remove(second)
		})
	}
}

// TestRouteReturnsLate shows that a route that was removed more than a day ago is new, and one that
// was removed later is not.
func TestRouteReturnsLate(t *testing.T) {
	// Guarantee: removed-route
	t.Parallel()
	s, ns := sandboxtest.StartNamespace(t)
	m := routertest.Use(t, s, routertest.ConfigMaps, ns)
	m.Make(routertest.ConfigMap("a", "1"))
	file := routertest.Install(t, s.Kubeconfig(), fmt.Sprintf(`
sources: {maps: {resource: v1/configmaps, namespaces: %s}}
sinks: {out: {stdout: {}}}
routes: [{name: back, from: maps, existing: deliver, to: out}]
`, ns))
	specs, err := informer.SpecsOf(&config.Source{Resource: "v1/configmaps", Namespaces: []string{ns}})
	must.Succeed(t, err)
	want := []string{"back added " + ns + "/a"}
	for i, away := range []time.Duration{0, checkpoint.KeepBacklogs - time.Hour, checkpoint.KeepBacklogs + time.Hour} {
		if away > 0 {
			db, err := checkpoint.Open(checkpoint.Config{Path: filepath.Join(filepath.Dir(file), "state", "state.db")})
			must.Succeed(t, err)
			err = db.Forget(checkpoint.Configured{Watches: []string{specs[0].ID()}}, time.Now().Add(-away))
			must.Succeed(t, errors.Join(err, db.Close()))
		}
		r := routertest.StartFile(t, file)
		r.Ready(t)
		mark := fmt.Sprintf("mark-%d", i)
		m.Make(routertest.ConfigMap(mark, "1"))
		live := "back added " + ns + "/" + mark
		all := []string{live}
		if away == 0 || away > checkpoint.KeepBacklogs {
			all = append(all, want...)
		}
		routertest.Exactly(t, routertest.Summary(r.Expect(t, all...)), all)
		want = append(want, live)
		if code := r.Stop(t); code != 0 {
			t.Fatalf("exit code %d", code)
		}
	}
}
