package chaos

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/test/effort"
	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// churn changes objects until it is stopped, and records every version.
type churn struct {
	stop func()

	mu sync.Mutex
	// uid@resourceVersion for added and updated, uid@deleted for deleted
	versions map[string]bool
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
			c.note(string(o.GetUID()), "deleted")
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

// missing returns the versions that a route did not deliver, and those that it delivered twice with
// the prefix twice.
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
		if strings.HasSuffix(e.Type, ".deleted") {
			id = e.K8sUID + "@deleted"
		}
		if seen[e.Type+id] {
			missing = append(missing, "twice: "+e.Type+" "+id)
		}
		seen[e.Type+id] = true
		delete(left, id)
	}
	return slices.AppendSeq(missing, maps.Keys(left))
}

// reloaded makes the configurations of TestReloads. Each good one differs from the one before; the
// bad ones are refused at different stages.
type reloaded struct{ head, ns, guest string }

func (c reloaded) good(n int) string {
	text := c.head + "sources:\n  maps: {resource: v1/configmaps, namespaces: " + c.ns
	if n%4 == 0 {
		text += ", indexes: {byValue: object.data.value}"
	}
	text += "}\n"
	if n%4 == 2 {
		text += "  secrets: {resource: v1/secrets, namespaces: " + c.ns + "}\n"
	}
	text += "sinks: {out: {stdout: {}}}\n" + c.handlers(1+n/4) + "routes:\n" +
		`  - {name: always, from: maps, filter: 'object.metadata.name.startsWith("churn")', to: out}` + "\n" +
		fmt.Sprintf(`  - {name: changing, from: maps, filter: 'object.metadata.name.startsWith("churn") && %d > 0', to: out}`, n+1) + "\n" +
		fmt.Sprintf("  - {name: named%d, id: named, from: maps, to: out}\n", n) +
		"  - {name: handled, from: maps, handler: alert, concurrency: 1, to: out}\n"
	switch n % 4 {
	case 0:
		text += `  - {name: counting, from: maps, ops: updated, emit: '{"n": count("byValue", object.data.value)}', to: out}` + "\n"
	case 2:
		text += "  - {name: sometimes, from: [maps, secrets], existing: deliver, to: out}\n"
	}
	return text
}

func (c reloaded) handlers(threshold int) string {
	return fmt.Sprintf("handlers: {alert: {wasm: {module: %q, config: {threshold: %d}}}}\n", c.guest, threshold)
}

func (c reloaded) bad(n, kind int) string {
	switch good := c.good(n); kind % 4 {
	case 0:
		return good + "  - {name: always, from: maps, to: out}\n"
	case 1:
		return good + "colour: red\n"
	case 2: // one handler opens, and this one does not
		return strings.Replace(strings.Replace(good, c.handlers(1+n/4), fmt.Sprintf(
			"handlers: {another: {wasm: {module: %q, config: {threshold: 99}}}, broken: {wasm: {module: %[1]q, config: {threshold: 0}}}}\n", c.guest), 1),
			"handler: alert, concurrency: 1", "handler: another", 1) + "  - {name: broken, from: maps, handler: broken, to: out}\n"
	default:
		return strings.Replace(good, "cluster: {name: test", "cluster: {name: other", 1)
	}
}

// TestReloads reloads again and again while objects change, every other time with a bad
// configuration. Routes that exist all the time, or only change their name or filter, must deliver
// every change and every delete once. The watch must not be opened again. Neither goroutines nor
// guests may accumulate.
func TestReloads(t *testing.T) {
	// Guarantee: reload-all-or-nothing, reload-atomic, reload-keeps, reload-drops-watches
	t.Parallel()
	reloads := effort.Rounds(9, 25, 500) // at least each kind of bad and good ones
	s, ns := sandboxtest.StartNamespace(t)
	m := routertest.Use(t, s, routertest.ConfigMaps, ns)
	file := routertest.Install(t, s.Kubeconfig(), "")
	head, err := os.ReadFile(file)
	must.Succeed(t, err)
	c := reloaded{head: string(head), ns: ns, guest: routertest.Guest(t, "restart-alert")}
	routertest.Exchange(t, file, c.good(1))
	began := time.Now()
	r := routertest.StartFile(t, file)
	r.Ready(t)
	load := startChurn(t, m)
	r.Reload(t, file, c.good(2), true)
	r.Reload(t, file, c.good(3), true)
	poll := func(what string, holds func() bool) { t.Helper(); routertest.Poll(t, what, holds) }
	guests := 0.0
	poll("a guest", func() bool { guests = r.Metric(t, "deltarouter_guest_memory_bytes"); return guests > 0 })
	goroutines := r.Metric(t, "go_goroutines")
	random := rand.New(rand.NewPCG(1, 2))
	last := 3
	for i := range reloads {
		ok := 0.0
		if i%2 == 0 {
			r.Reload(t, file, c.bad(last, i/2), true)
			if body := r.Ready(t); !strings.Contains(body, "[-]config: ") {
				t.Errorf("after a bad configuration /readyz says %s", body)
			}
		} else {
			last++
			// now and then without a signal, by the file alone
			r.Reload(t, file, c.good(last), i == reloads-1 || random.IntN(4) > 0)
			ok = 1
		}
		if v := r.Metric(t, "deltarouter_config_last_reload_successful"); v != ok {
			t.Errorf("deltarouter_config_last_reload_successful is %v after configuration %d, want %v", v, last, ok)
		}
	}
	for last%4 != 3 { // the state in which the goroutines were counted
		last++
		r.Reload(t, file, c.good(last), true)
	}
	load.stop()
	load.check(t, r, m, ns, fmt.Sprintf("named%d", last))
	if n := routertest.Lists(t, s, "configmaps", ns); n != 1 {
		t.Errorf("config maps were listed %d times, want once", n)
	}
	watches := s.Requests(t, func(q sandboxtest.Request) bool {
		return q.Resource == "configmaps" && q.Verb == "watch" && q.Namespace == ns
	})
	// the API server ends a watch after five minutes or later
	if most := 1 + int(time.Since(began)/(5*time.Minute)); len(watches) > most {
		t.Errorf("config maps were watched %d times, want %d", len(watches), most)
	}
	poll("goroutines to end", func() bool { return r.Metric(t, "go_goroutines") <= goroutines+2 })
	poll("guests to end", func() bool { return r.Metric(t, "deltarouter_guest_memory_bytes") <= 2*guests })
	if _, body := r.Get(t, "/metrics"); strings.Contains(body, `source="secrets"`) || strings.Contains(body, `route="sometimes"`) ||
		strings.Contains(body, `handler="another"`) {
		t.Error("what was removed, or refused, has metrics still")
	}
	t.Logf("%d reloads and %d changes in %v", reloads, len(load.versions), time.Since(began).Round(time.Second))
}

// check waits until everything has reached the routes that exist all the time.
func (c *churn) check(t *testing.T, r *routertest.Router, m routertest.Objects, ns, named string) {
	t.Helper()
	mark := m.Make(routertest.ConfigMap("churn-last", "1"))
	c.note(string(mark.GetUID()), mark.GetResourceVersion())
	r.Expect(t, "always added "+ns+"/churn-last", "changing added "+ns+"/churn-last", named+" added "+ns+"/churn-last")
	for _, route := range []string{"always", "changing", "named"} {
		var missing []string
		// there is no order across objects
		r.Wait(t, "all versions on route "+route, func(events []routertest.Event) bool {
			missing = c.missing(events, route)
			return !slices.ContainsFunc(missing, func(m string) bool { return !strings.HasPrefix(m, "twice") })
		})
		if len(missing) > 0 {
			t.Errorf("route %s: %d of %d versions come twice: %q", route, len(missing), len(c.versions), missing[:min(len(missing), 5)])
		}
	}
}

// TestKilledInAReload kills the router during a reload: at once, while it opens new parts, while it
// replaces the routes, and soon after. Each reload adds a route with existing: deliver, removes one
// and renames one. All routes deliver to a webhook that is unavailable one time in four. After the
// restart no route may miss an event.
func TestKilledInAReload(t *testing.T) {
	// Guarantee: reload-killed
	t.Parallel()
	s, ns := sandboxtest.StartNamespace(t)
	m := routertest.Use(t, s, routertest.ConfigMaps, ns)
	h := newReceiver(t, func(*http.Request) int {
		if rand.IntN(4) == 0 { //nolint:gosec // no secret
			return http.StatusServiceUnavailable
		}
		return http.StatusOK
	})
	file := routertest.Install(t, s.Kubeconfig(), "")
	head, err := os.ReadFile(file)
	must.Succeed(t, err)
	config := func(n int) string {
		text := string(head) + fmt.Sprintf("sources: {maps: {resource: v1/configmaps, namespaces: %s}}\nsinks:\n", ns)
		routes := "routes:\n"
		add := func(sink, route string) {
			text += fmt.Sprintf("  %s: {webhook: {url: %q}}\n", sink, h.URL+"/"+sink)
			routes += fmt.Sprintf("  - {%s, from: maps, filter: 'object.metadata.name.startsWith(\"o-\")', existing: deliver, to: %s, retry: {backoff: 1ms, max: 20ms}}\n", route, sink)
		}
		add("always", "name: always")
		add("named", fmt.Sprintf("name: named%d, id: named", n))
		for i := max(n-1, 0); i <= n; i++ {
			add(fmt.Sprintf("fresh%d", i), fmt.Sprintf("name: fresh%d", i))
		}
		return text + routes
	}
	book := newLedger(t)
	routertest.Exchange(t, file, config(0))
	r := routertest.StartFile(t, file)
	r.Ready(t)
	kills := effort.Rounds(4, 8, 120) // at least each moment
	for n := 1; n <= kills; n++ {
		for range 10 + rand.IntN(30) { //nolint:gosec // no secret
			book.step(m, fmt.Sprintf("o-%d", rand.IntN(30)), rand.IntN(4)) //nolint:gosec // no secret
		}
		dieReloading(t, r, file, config(n), n)
		for range rand.IntN(10) { //nolint:gosec // no secret
			book.step(m, fmt.Sprintf("o-%d", rand.IntN(30)), rand.IntN(4)) //nolint:gosec // no secret
		}
		r = routertest.StartFile(t, file)
		for _, path := range []string{"always", "named", fmt.Sprintf("fresh%d", n), fmt.Sprintf("fresh%d", n-1)} {
			wait(t, "the last state on "+path, func() string { return book.settled(h.life("/" + path)) })
		}
	}
}

// dieReloading starts a reload and kills the router at one of several moments.
func dieReloading(t *testing.T, r *routertest.Router, file, config string, n int) {
	t.Helper()
	logged := func(text string) {
		t.Helper()
		r.WaitLog(t, text, func(log string) bool { return strings.Contains(log, text) })
	}
	routertest.Exchange(t, file, config)
	must.Succeed(t, r.Process().Signal(syscall.SIGHUP))
	switch n % 4 {
	case 0: // at once
	case 1:
		logged(`"msg":"reloading on a signal"`)
	case 2:
		logged(`"msg":"reloading on a signal"`)
		<-time.After(time.Duration(rand.IntN(40)) * time.Millisecond) //nolint:gosec // no secret
	case 3:
		logged(`"msg":"reloaded"`)
	}
	r.Kill(t)
}

// wait polls until there is no problem, and reports the last problem if that takes too long.
func wait(t *testing.T, what string, problem func() string) {
	t.Helper()
	text := ""
	defer func() {
		if t.Failed() {
			t.Log(text)
		}
	}()
	routertest.Poll(t, what, func() bool { text = problem(); return text == "" })
}
