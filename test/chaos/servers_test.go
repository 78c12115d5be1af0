package chaos

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/deltarouter/deltarouter/test/effort"
	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// TestCompactedWhileDown changes objects and compacts etcd while the router is down. Only the
// differences may be delivered.
func TestCompactedWhileDown(t *testing.T) {
	// Guarantee: history-lost, gap-forgets-position
	t.Parallel()
	n := effort.Rounds(10, 30, 600)
	s := sandboxtest.Borrow(t)
	ns := s.Namespace(t)
	maps := routertest.Use(t, s, routertest.ConfigMaps, ns)
	for _, prefix := range []string{"same", "changed", "gone", "again"} {
		createMany(t, s, ns, prefix, n)
	}
	file := routertest.Install(t, s.Kubeconfig(), fmt.Sprintf(watchConfigMaps, ns)+"sinks: {out: {stdout: {}}}\n")
	r := routertest.StartFile(t, file)
	r.Ready(t)
	r.Stop(t)

	var want []string
	for i := range n {
		name := func(prefix string) string { return fmt.Sprintf("%s-%d", prefix, i) }
		maps.Change(name("changed"), `{"data":{"value":"2"}}`)
		maps.Change(name("changed"), `{"data":{"value":"3"}}`)
		maps.Remove(name("gone"))
		maps.Remove(name("again"))
		maps.Make(routertest.ConfigMap(name("again"), "2"))
		maps.Make(routertest.ConfigMap(name("passing"), "1"))
		maps.Remove(name("passing"))
		maps.Make(routertest.ConfigMap(name("new"), "1"))
		want = append(want, "all updated "+ns+"/"+name("changed"), "all deleted "+ns+"/"+name("gone"), "all deleted "+ns+"/"+name("again"),
			"all added "+ns+"/"+name("again"), "all added "+ns+"/"+name("new"))
	}
	s.StopAPIServer(t)
	s.CompactEtcd(t)
	s.StartAPIServer(t)

	r = routertest.StartFile(t, file)
	r.Expect(t, want...)
	maps.Make(routertest.ConfigMap("last", "1"))
	events := r.Expect(t, append(want, "all added "+ns+"/last")...)
	routertest.Exactly(t, routertest.Summary(events), append(want, "all added "+ns+"/last"))
	for _, e := range events {
		stale, data := strings.Contains(string(e.Data), `"stale":true`), string(e.Data)
		deleted := strings.HasSuffix(e.Type, ".deleted")
		if stale != deleted || strings.Contains(data, `"initial":true`) || deleted && valueOf(t, e, "object") != "1" {
			t.Errorf("%s: %s", e, data)
		}
		if strings.HasSuffix(e.Type, ".updated") && (valueOf(t, e, "oldObject") != "1" || valueOf(t, e, "object") != "3") {
			t.Errorf("%s: %s", e, data)
		}
	}
	checkOrder(t, events, ns+"/again-7", "all deleted "+ns+"/again-7", "all added "+ns+"/again-7")
}

func checkOrder(t *testing.T, events []routertest.Event, subject string, want ...string) {
	t.Helper()
	if got := routertest.Of(events, subject); strings.Join(got, ", ") != strings.Join(want, ", ") {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestServerKilledWhileDown kills the API server while the router is down, while it starts, and
// while it runs. The watch cache of the API server then begins at a later version than the saved
// one.
func TestServerKilledWhileDown(t *testing.T) {
	t.Parallel()
	s := sandboxtest.Borrow(t)
	ns := s.Namespace(t)
	maps := routertest.Use(t, s, routertest.ConfigMaps, ns)
	createMany(t, s, ns, "same", 20)
	maps.Make(routertest.ConfigMap("gone", "1"))
	file := routertest.Install(t, s.Kubeconfig(), fmt.Sprintf(watchConfigMaps, ns)+"sinks: {out: {stdout: {}}}\n")
	r := routertest.StartFile(t, file)
	r.Ready(t)
	r.Stop(t)

	maps.Change("gone", `{"data":{"value":"2"}}`)
	maps.Remove("gone")
	maps.Make(routertest.ConfigMap("new", "1"))
	s.KillAPIServer(t)
	r = routertest.StartFile(t, file) // the API server does not answer
	r.WaitLog(t, "a complaint", func(log string) bool { return strings.Contains(log, "retrying") })
	if code, body := r.Get(t, "/readyz"); code == http.StatusOK {
		t.Errorf("ready without an API server: %s", body)
	}
	s.StartAPIServer(t)
	want := []string{"all added " + ns + "/new", "all deleted " + ns + "/gone"}
	r.Expect(t, want...)
	r.Ready(t)

	maps.Make(routertest.ConfigMap("between", "1"))
	s.KillAPIServer(t) // the router may not have noticed
	s.StartAPIServer(t)
	maps.Make(routertest.ConfigMap("last", "1"))
	want = append(want, "all added "+ns+"/between", "all added "+ns+"/last")
	events := r.Expect(t, want...)
	updates := 0
	for _, e := range events {
		if e.String() == "all updated "+ns+"/gone" { // seen if the history was still there
			updates++
		}
	}
	if len(events) != len(want)+updates || updates > 1 {
		t.Errorf("got %q, want %q", routertest.Summary(events), want)
	}
}

// TestKilledInTheFirstList kills the router in the middle of its first list, which a slow webhook
// delays. After the restart every object must be delivered in its last state, and so must every
// delete of a delivered object.
func TestKilledInTheFirstList(t *testing.T) {
	t.Parallel()
	s, ns := sandboxtest.StartNamespace(t)
	n := effort.Rounds(400, 1000, 5000)
	h := newReceiver(t, slowly(2*time.Millisecond))
	file := routertest.Install(t, s.Kubeconfig(), fmt.Sprintf(`
sources:
  maps: {resource: v1/configmaps, namespaces: %s}
sinks: {hook: {webhook: {url: %q}}}
routes:
  - {name: all, from: maps, filter: object.metadata.name.startsWith("m-"), existing: deliver, to: hook, queue: {memory: 50}, overflow: block}
`, ns, h.URL))
	c := &crowd{s: s, ns: ns, uids: createMany(t, s, ns, "m", n), alive: make(map[string]string), h: h}
	r := routertest.StartFile(t, file)
	routertest.Poll(t, "a part of the objects", func() bool { return h.count() > n/4 })
	r.Kill(t)
	c.change(t, 0)
	r = routertest.StartFile(t, file)
	before := h.count()
	routertest.Poll(t, "another part of them", func() bool { return h.count() > before+n/4 })
	r.Kill(t) // a second time
	c.change(t, 1)
	h.now(answer(http.StatusOK))
	r = routertest.StartFile(t, file)
	c.settle(t)
	r.Ready(t)
	t.Logf("%d deliveries for %d objects, killed twice", h.count(), n)
}

// TestKilledInARelist kills the router in the middle of a list after a gap.
func TestKilledInARelist(t *testing.T) {
	t.Parallel()
	s := sandboxtest.Borrow(t)
	ns := s.Namespace(t)
	n := effort.Rounds(400, 1000, 5000)
	h := newReceiver(t, answer(http.StatusOK))
	file := routertest.Install(t, s.Kubeconfig(), fmt.Sprintf(`
sources:
  maps: {resource: v1/configmaps, namespaces: %s}
sinks: {hook: {webhook: {url: %q}}}
routes:
  - {name: all, from: maps, filter: object.metadata.name.startsWith("m-"), existing: deliver, to: hook, queue: {memory: 50}, overflow: block}
`, ns, h.URL))
	c := &crowd{s: s, ns: ns, uids: createMany(t, s, ns, "m", n), alive: make(map[string]string), h: h}
	r := routertest.StartFile(t, file)
	routertest.Poll(t, "all objects", func() bool { return h.count() >= n })
	r.Saved(t)
	r.Kill(t)
	for round := range 2 {
		c.change(t, round)
		s.StopAPIServer(t)
		s.CompactEtcd(t)
		s.StartAPIServer(t)
		h.now(slowly(2 * time.Millisecond))
		r = routertest.StartFile(t, file)
		before := h.count()
		routertest.Poll(t, "a part of the changes", func() bool { return h.count() > before+n/8 })
		r.Kill(t)
	}
	h.now(answer(http.StatusOK))
	routertest.StartFile(t, file)
	c.settle(t)
	if h.count() > 4*n {
		t.Errorf("%d deliveries for %d objects", h.count(), n)
	}
}

// crowd is many ConfigMaps m-0, m-1, … with their deliveries.
type crowd struct {
	s     *sandboxtest.Sandbox
	ns    string
	uids  []string
	alive map[string]string // resourceVersion by uid
	h     *receiver
}

// change deletes, recreates and updates a third of the objects, other ones in each round.
func (c *crowd) change(t *testing.T, round int) {
	t.Helper()
	maps := routertest.Use(t, c.s, routertest.ConfigMaps, c.ns)
	third := len(c.uids) / 3
	each(t, third, func(i int) error {
		name := fmt.Sprintf("m-%d", i*3+round)
		switch i % 3 {
		case 0:
			return maps.Delete(t.Context(), name, metav1.DeleteOptions{})
		case 1:
			if err := maps.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
				return err
			}
			_, err := maps.Create(t.Context(), routertest.ConfigMap(name, fmt.Sprint(rand.Int())), metav1.CreateOptions{}) //nolint:gosec // no secret
			return err
		}
		maps.Change(name, fmt.Sprintf(`{"data":{"value":"%d"}}`, round+2))
		return nil
	})
	list, err := maps.List(t.Context(), metav1.ListOptions{})
	must.Succeed(t, err)
	clear(c.alive)
	for _, o := range list.Items {
		if strings.HasPrefix(o.GetName(), "m-") {
			c.alive[string(o.GetUID())] = o.GetResourceVersion()
		}
	}
}

// settle waits until each existing object was delivered in its last state, and each delivered
// object that was deleted was delivered as deleted.
func (c *crowd) settle(t *testing.T) {
	t.Helper()
	book := newLedger(t)
	book.alive = c.alive
	problem := ""
	defer func() {
		if t.Failed() {
			t.Log(problem)
		}
	}()
	routertest.Poll(t, "all of it", func() bool {
		problem = book.settled(c.h.delivered())
		return problem == ""
	})
}

// TestStopWhileAllIsDead stops the router when neither the API server nor the webhook answers. It
// must end in time, and the next one must deliver the backlog.
func TestStopWhileAllIsDead(t *testing.T) {
	// Guarantee: stop-bounded
	t.Parallel()
	for name, dead := range map[string]func(*http.Request) int{
		"unavailable": answer(http.StatusServiceUnavailable),
		"silent":      slowly(time.Hour),
	} {
		t.Run(name, func(t *testing.T) {
			s, ns := sandboxtest.StartNamespace(t)
			maps := routertest.Use(t, s, routertest.ConfigMaps, ns)
			proxy := s.Proxy(t)
			h := newReceiver(t, dead)
			file := routertest.Install(t, proxy.Kubeconfig(), fmt.Sprintf(`
sources:
  maps: {resource: v1/configmaps, namespaces: %s}
sinks: {out: {stdout: {}}, hook: {webhook: {url: %q}}}
routes:
  - {name: out, from: maps, to: out}
  - {name: hook, from: maps, to: hook, retry: {backoff: 10ms, max: 100ms}}
`, ns, h.URL))
			r := routertest.StartFile(t, file, "-drain-timeout", "1s")
			r.Ready(t)
			createMany(t, s, ns, "m", 100)
			maps.Remove("m-7")
			r.Expect(t, "out deleted "+ns+"/m-7")
			r.Wait(t, "all of it", func(events []routertest.Event) bool { return len(events) == 101 })
			proxy.Refuse()
			maps.Remove("m-8")
			began := time.Now()
			must.Succeed(t, r.Process().Signal(syscall.SIGTERM))
			code := r.Ended(t)
			if took := time.Since(began); took > 6*time.Second || code != 0 {
				t.Errorf("ended after %v with exit code %d, want 0 within 6 s", took, code)
			}
			if h.count() != 0 {
				t.Fatal("something was delivered")
			}

			h.now(answer(http.StatusOK))
			proxy.Unblock()
			again := routertest.StartFile(t, file)
			routertest.Poll(t, "what was owed", func() bool { return h.count() >= 102 })
			again.Expect(t, "out deleted "+ns+"/m-8")
			var want []string
			for i := range 100 {
				want = append(want, fmt.Sprintf("hook added %s/m-%d", ns, i))
			}
			want = append(want, "hook deleted "+ns+"/m-7", "hook deleted "+ns+"/m-8")
			routertest.Exactly(t, routertest.Summary(h.delivered()), want)
			if n := len(again.Events()); n != 1 {
				t.Errorf("the other route got %q, want what happened meanwhile", routertest.Summary(again.Events()))
			}
		})
	}
}
