package e2e

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// reload exchanges the configuration as a ConfigMap mount does, or, with SIGHUP, as an editor does, and waits until the router has
// taken or refused it.
func reload(t *testing.T, r *routertest.Router, file, config string, signal bool) {
	t.Helper()
	done := func(log string) int {
		return strings.Count(log, `"msg":"reloaded"`) + strings.Count(log, `"msg":"the configuration is not reloaded"`)
	}
	before := done(r.Log())
	beside := file + ".new"
	if err := os.WriteFile(beside, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(beside, file); err != nil {
		t.Fatal(err)
	}
	if signal {
		if err := r.Process().Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
	}
	r.WaitLog(t, "the reload", func(log string) bool { return done(log) > before })
}

// churn changes objects until it is stopped, and writes down every version that there was.
type churn struct {
	stop func()

	mu       sync.Mutex
	versions map[string]bool // uid@resourceVersion of what was added or updated
}

func startChurn(t *testing.T, m routertest.Objects) *churn {
	t.Helper()
	c := &churn{versions: make(map[string]bool)}
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default:
			}
			name := fmt.Sprintf("churn-%d", i)
			o := m.Make(routertest.ConfigMap(name, "0"))
			c.note(string(o.GetUID()), o.GetResourceVersion())
			m.Change(name, fmt.Sprintf(`{"data":{"value":"%d"}}`, i+1))
			c.note(string(o.GetUID()), m.Version(name))
			m.Remove(name)
		}
	}()
	c.stop = sync.OnceFunc(func() { close(done); <-ended })
	t.Cleanup(c.stop)
	return c
}

func (c *churn) note(uid, version string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.versions[uid+"@"+version] = true
}

// missing returns what a route did not deliver, and twice what it delivered twice.
func (c *churn) missing(events []routertest.Event, route string) (missing []string) {
	c.mu.Lock()
	left := maps.Clone(c.versions)
	c.mu.Unlock()
	seen := make(map[string]bool)
	for _, e := range events {
		if strings.TrimRight(e.Route, "0123456789") != route {
			continue
		}
		id := e.K8sUID + "@" + e.K8sResourceVersion
		if seen[e.Type+id] {
			missing = append(missing, "twice: "+e.Type+" "+id)
		}
		seen[e.Type+id] = true
		delete(left, id)
	}
	return slices.AppendSeq(missing, maps.Keys(left))
}

// TestReloads reloads again and again, every other time something that is refused, while objects change. Routes that are there all the
// time, or only get another name or another filter, deliver every change once; the watch is never opened anew; nothing piles up.
func TestReloads(t *testing.T) {
	const reloads = 20
	s := sandboxtest.New(t, sandboxtest.Options{})
	ns := s.Namespace(t)
	m := routertest.Use(t, s, routertest.ConfigMaps, ns)
	dir := t.TempDir()
	head := fmt.Sprintf("version: 1\ncluster: {name: test, kubeconfig: %q}\nstate: {dir: %q}\nlisten: {probes: \"127.0.0.1:0\"}\n",
		s.Kubeconfig(), filepath.Join(dir, "state"))
	config := func(n int) string {
		text := head + fmt.Sprintf("sources:\n  maps: {resource: v1/configmaps, namespaces: %s", ns)
		if n%4 == 0 {
			text += ", indexes: {byValue: object.data.value}"
		}
		text += "}\n"
		if n%4 == 2 {
			text += "  secrets: {resource: v1/secrets, namespaces: " + ns + "}\n"
		}
		text += "sinks: {out: {stdout: {}}}\nroutes:\n" +
			`  - {name: always, from: maps, filter: 'object.metadata.name.startsWith("churn")', to: out}` + "\n" +
			fmt.Sprintf(`  - {name: changing, from: maps, filter: 'object.metadata.name.startsWith("churn") && %d > 0', to: out}`, n+1) + "\n" +
			fmt.Sprintf("  - {name: named%d, was: named%d, from: maps, to: out}\n", n, n-1)
		if n%4 == 0 {
			text += `  - {name: counting, from: maps, on: updated, emit: '{"n": count("byValue", object.data.value)}', to: out}` + "\n"
		}
		if n%4 == 2 {
			text += "  - {name: sometimes, from: [maps, secrets], to: out}\n"
		}
		return text
	}
	file := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(file, []byte(config(1)), 0o600); err != nil {
		t.Fatal(err)
	}
	r := routertest.StartFile(t, file)
	r.Ready(t)
	c := startChurn(t, m)
	reload(t, r, file, config(2), true)
	reload(t, r, file, config(3), true)
	goroutines := r.Metric(t, "go_goroutines")
	random := rand.New(rand.NewPCG(1, 2))
	last := 3
	for i := range reloads {
		if i%2 == 0 {
			reload(t, r, file, config(last)+"  - {name: always, from: maps, to: out}\n", true)
			if body := r.Ready(t); !strings.Contains(body, "[-]config: ") {
				t.Errorf("after a bad configuration /readyz says %s", body)
			}
			if v := r.Metric(t, "deltarouter_config_reload_success"); v != 0 {
				t.Errorf("deltarouter_config_reload_success is %v", v)
			}
			continue
		}
		last++
		reload(t, r, file, config(last), i == reloads-1 || random.IntN(4) > 0) // now and then the file alone tells
		if v := r.Metric(t, "deltarouter_config_reload_success"); v != 1 {
			t.Errorf("deltarouter_config_reload_success is %v after a good configuration", v)
		}
	}
	for last%4 != 3 { // as when the goroutines were counted
		last++
		reload(t, r, file, config(last), true)
	}
	c.stop()
	mark := m.Make(routertest.ConfigMap("churn-last", "1"))
	c.note(string(mark.GetUID()), mark.GetResourceVersion())
	named := fmt.Sprintf("named%d", last)
	r.Expect(t, "always added "+ns+"/churn-last", "changing added "+ns+"/churn-last", named+" added "+ns+"/churn-last")
	for _, route := range []string{"always", "changing", "named"} {
		var missing []string
		r.Wait(t, "all versions on route "+route, func(events []routertest.Event) bool { // there is no order across objects
			missing = c.missing(events, route)
			return !slices.ContainsFunc(missing, func(m string) bool { return !strings.HasPrefix(m, "twice") })
		})
		if len(missing) > 0 {
			t.Errorf("route %s: %d of %d versions come twice: %q", route, len(missing), len(c.versions), missing[:min(len(missing), 5)])
		}
	}
	if n := routertest.Lists(t, s, "configmaps"); n != 1 {
		t.Errorf("config maps were listed %d times, want once", n)
	}
	watches := s.Requests(t, func(q sandboxtest.Request) bool { return q.Resource == "configmaps" && q.Verb == "watch" })
	if len(watches) != 1 {
		t.Errorf("config maps were watched %d times, want once", len(watches))
	}
	routertest.Poll(t, "goroutines to end", func() bool { return r.Metric(t, "go_goroutines") <= goroutines+2 })
	if _, body := r.Get(t, "/metrics"); strings.Contains(body, `source="secrets"`) || strings.Contains(body, `route="sometimes"`) {
		t.Error("what was removed has metrics still")
	}
}

// TestReloadedRoutes: what a new route with existing: deliver gets, what a removed one owes when it returns, and what cannot change.
func TestReloadedRoutes(t *testing.T) {
	s := sandboxtest.Start(t)
	ns := s.Namespace(t)
	m := routertest.Use(t, s, routertest.ConfigMaps, ns)
	m.Make(routertest.ConfigMap("before", "1"))
	h := newHook(t)
	h.answer(503)
	dir := t.TempDir()
	file := filepath.Join(dir, "config.yaml")
	config := func(state, routes string) string {
		return fmt.Sprintf(`version: 1
cluster: {name: test, kubeconfig: %q}
state: {dir: %q}
listen: {probes: "127.0.0.1:0"}
sources: {maps: {resource: v1/configmaps, namespaces: %s}, again: {resource: v1/configmaps, namespaces: %[3]s, labelSelector: "a!=b"}}
sinks: {out: {stdout: {}}, hook: {webhook: {url: %q}}}
routes:
  - {name: all, from: maps, to: out}
`, s.Kubeconfig(), filepath.Join(dir, state), ns, h.URL) + routes
	}
	const owing = "  - {name: owing, from: maps, to: hook, retry: {backoff: 10ms, max: 50ms}}\n"
	if err := os.WriteFile(file, []byte(config("state", owing)), 0o600); err != nil {
		t.Fatal(err)
	}
	r := routertest.StartFile(t, file)
	r.Ready(t)
	m.Make(routertest.ConfigMap("owed", "1"))
	r.Expect(t, "all added "+ns+"/owed")

	reload(t, r, file, config("state", "  - {name: late, from: maps, existing: deliver, to: out}\n"), true)
	r.Expect(t, "late added "+ns+"/before", "late added "+ns+"/owed")
	h.answer(200)
	reload(t, r, file, config("elsewhere", owing), true)
	if _, body := r.Get(t, "/readyz"); !strings.Contains(body, "state: cannot change while the router runs") {
		t.Errorf("/readyz says %s", body)
	}
	if h.count() != 0 {
		t.Error("a route that is removed delivers")
	}
	reload(t, r, file, config("state", owing), true)
	routertest.Poll(t, "what was owed", func() bool { return h.count() == 1 })
	if !strings.Contains(h.got[0], ns+"/owed") {
		t.Errorf("got %s", h.got[0])
	}
}
