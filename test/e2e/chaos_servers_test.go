package e2e

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// TestCompactedWhileDown: while the router is down, objects change and etcd forgets the history. Only what differs is delivered.
func TestCompactedWhileDown(t *testing.T) {
	n := scaled(t, 30)
	s := sandboxtest.New(t, sandboxtest.Options{})
	ns := s.Namespace(t)
	maps := use(t, s, configMaps, ns)
	for _, prefix := range []string{"same", "changed", "gone", "again"} {
		createMany(t, s, ns, prefix, n)
	}
	file := install(t, s.Kubeconfig(), fmt.Sprintf(watchConfigMaps, ns)+"sinks: {out: {stdout: {}}}\n")
	r := startFile(t, file)
	r.ready(t)
	r.stop(t)

	var want []string
	for i := range n {
		name := func(prefix string) string { return fmt.Sprintf("%s-%d", prefix, i) }
		maps.patch(name("changed"), `{"data":{"value":"2"}}`)
		maps.patch(name("changed"), `{"data":{"value":"3"}}`)
		maps.remove(name("gone"))
		maps.remove(name("again"))
		maps.create(configMap(name("again"), "2"))
		maps.create(configMap(name("passing"), "1"))
		maps.remove(name("passing"))
		maps.create(configMap(name("new"), "1"))
		want = append(want, "all updated "+ns+"/"+name("changed"), "all deleted "+ns+"/"+name("gone"), "all deleted "+ns+"/"+name("again"),
			"all added "+ns+"/"+name("again"), "all added "+ns+"/"+name("new"))
	}
	s.StopAPIServer(t)
	s.CompactEtcd(t)
	s.StartAPIServer(t)

	r = startFile(t, file)
	r.expect(t, want...)
	maps.create(configMap("last", "1"))
	events := r.expect(t, append(want, "all added "+ns+"/last")...)
	exactly(t, summary(events), append(want, "all added "+ns+"/last"))
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

func checkOrder(t *testing.T, events []cloudEvent, subject string, want ...string) {
	t.Helper()
	if got := of(events, subject); strings.Join(got, ", ") != strings.Join(want, ", ") {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestServerKilledWhileDown kills the API server while the router is down, while it starts, and while it runs. Its watch cache then
// begins anew, later than what was saved.
func TestServerKilledWhileDown(t *testing.T) {
	s := sandboxtest.New(t, sandboxtest.Options{})
	ns := s.Namespace(t)
	maps := use(t, s, configMaps, ns)
	createMany(t, s, ns, "same", 20)
	maps.create(configMap("gone", "1"))
	file := install(t, s.Kubeconfig(), fmt.Sprintf(watchConfigMaps, ns)+"sinks: {out: {stdout: {}}}\n")
	r := startFile(t, file)
	r.ready(t)
	r.stop(t)

	maps.patch("gone", `{"data":{"value":"2"}}`)
	maps.remove("gone")
	maps.create(configMap("new", "1"))
	s.KillAPIServer(t)
	r = startFile(t, file) // nobody answers it
	r.wait(t, "a complaint", func() bool { return strings.Contains(r.stderr.String(), "trying again") })
	if code, body := r.get(t, "/readyz"); code == http.StatusOK {
		t.Errorf("ready without an API server: %s", body)
	}
	s.StartAPIServer(t)
	want := []string{"all added " + ns + "/new", "all deleted " + ns + "/gone"}
	r.expect(t, want...)
	r.ready(t)

	maps.create(configMap("between", "1"))
	s.KillAPIServer(t) // the router may not have heard of it
	s.StartAPIServer(t)
	maps.create(configMap("last", "1"))
	want = append(want, "all added "+ns+"/between", "all added "+ns+"/last")
	events := r.expect(t, want...)
	updates := 0
	for _, e := range events {
		if e.String() == "all updated "+ns+"/gone" { // seen if the history was still there
			updates++
		}
	}
	if len(events) != len(want)+updates || updates > 1 {
		t.Errorf("got %q, want %q", summary(events), want)
	}
}

// TestKilledInTheFirstList kills the router in the middle of its first list, which a slow webhook holds up: after the restart every
// object is delivered, in its last state, and so is every delete of what had been delivered.
func TestKilledInTheFirstList(t *testing.T) {
	s := sandboxtest.Start(t)
	ns := s.Namespace(t)
	n := 1000
	if long(t) > 0 {
		n = 5000
	}
	h := newReceiver(t, slowly(2*time.Millisecond))
	file := install(t, s.Kubeconfig(), fmt.Sprintf(`
sources:
  maps: {resource: v1/configmaps, namespaces: %s}
sinks: {hook: {webhook: {url: %q}}}
routes:
  - {name: all, from: maps, filter: object.metadata.name.startsWith("m-"), existing: deliver, to: hook, queue: {memory: 50}, overflow: block}
`, ns, h.URL))
	c := &crowd{s: s, ns: ns, uids: createMany(t, s, ns, "m", n), alive: make(map[string]string), h: h}
	r := startFile(t, file)
	poll(t, "a part of the objects", func() bool { return h.count() > n/4 })
	r.kill(t)
	c.change(t, 0)
	r = startFile(t, file)
	before := h.count()
	poll(t, "another part of them", func() bool { return h.count() > before+n/4 })
	r.kill(t) // and again
	c.change(t, 1)
	h.now(answer(http.StatusOK))
	r = startFile(t, file)
	c.settle(t)
	r.ready(t)
	t.Logf("%d deliveries for %d objects, killed twice", h.count(), n)
}

// TestKilledInARelist is the same in the middle of a list that follows a gap.
func TestKilledInARelist(t *testing.T) {
	s := sandboxtest.New(t, sandboxtest.Options{})
	ns := s.Namespace(t)
	n := 1000
	if long(t) > 0 {
		n = 5000
	}
	h := newReceiver(t, answer(http.StatusOK))
	file := install(t, s.Kubeconfig(), fmt.Sprintf(`
sources:
  maps: {resource: v1/configmaps, namespaces: %s}
sinks: {hook: {webhook: {url: %q}}}
routes:
  - {name: all, from: maps, filter: object.metadata.name.startsWith("m-"), existing: deliver, to: hook, queue: {memory: 50}, overflow: block}
`, ns, h.URL))
	c := &crowd{s: s, ns: ns, uids: createMany(t, s, ns, "m", n), alive: make(map[string]string), h: h}
	r := startFile(t, file)
	poll(t, "all objects", func() bool { return h.count() >= n })
	r.saved(t)
	r.kill(t)
	for round := range 2 {
		c.change(t, round)
		s.StopAPIServer(t)
		s.CompactEtcd(t)
		s.StartAPIServer(t)
		h.now(slowly(2 * time.Millisecond))
		r = startFile(t, file)
		before := h.count()
		poll(t, "a part of the changes", func() bool { return h.count() > before+n/8 })
		r.kill(t)
	}
	h.now(answer(http.StatusOK))
	startFile(t, file)
	c.settle(t)
	if h.count() > 4*n {
		t.Errorf("%d deliveries for %d objects", h.count(), n)
	}
}

// crowd is many ConfigMaps m-0, m-1, … and what was delivered of them.
type crowd struct {
	s     *sandboxtest.Sandbox
	ns    string
	uids  []string
	alive map[string]string // by uid, the resourceVersion
	h     *receiver
}

// change deletes, recreates and updates a third of the objects, others in each round.
func (c *crowd) change(t *testing.T, round int) {
	t.Helper()
	maps := use(t, c.s, configMaps, c.ns)
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
			_, err := maps.Create(t.Context(), configMap(name, fmt.Sprint(rand.Int())), metav1.CreateOptions{}) //nolint:gosec // no secret
			return err
		}
		maps.patch(name, fmt.Sprintf(`{"data":{"value":"%d"}}`, round+2))
		return nil
	})
	list, err := maps.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	clear(c.alive)
	for _, o := range list.Items {
		if strings.HasPrefix(o.GetName(), "m-") {
			c.alive[string(o.GetUID())] = o.GetResourceVersion()
		}
	}
}

// settle waits until what exists was delivered in its last state, and what was delivered and is gone was delivered as deleted.
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
	poll(t, "all of it", func() bool {
		problem = book.settled(c.h.delivered())
		return problem == ""
	})
}

// TestStopWhileAllIsDead: neither the API server nor the webhook is there any more. The router ends in time all the same, and the next
// one delivers what is owed.
func TestStopWhileAllIsDead(t *testing.T) {
	for name, dead := range map[string]func(*http.Request) int{
		"unavailable": answer(http.StatusServiceUnavailable),
		"silent":      slowly(time.Hour),
	} {
		t.Run(name, func(t *testing.T) {
			s := sandboxtest.Start(t)
			ns := s.Namespace(t)
			maps := use(t, s, configMaps, ns)
			proxy := s.Proxy(t)
			h := newReceiver(t, dead)
			file := install(t, proxy.Kubeconfig(), fmt.Sprintf(`
sources:
  maps: {resource: v1/configmaps, namespaces: %s}
sinks: {out: {stdout: {}}, hook: {webhook: {url: %q}}}
routes:
  - {name: out, from: maps, to: out}
  - {name: hook, from: maps, to: hook, retry: {backoff: 10ms, max: 100ms}}
`, ns, h.URL))
			r := startFile(t, file, "-drain-timeout", "1s")
			r.ready(t)
			createMany(t, s, ns, "m", 100)
			maps.remove("m-7")
			r.expect(t, "out deleted "+ns+"/m-7")
			r.wait(t, "all of it", func() bool { return len(r.events) == 101 })
			proxy.Refuse()
			maps.remove("m-8")
			began := time.Now()
			if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			code := r.ended(t)
			if took := time.Since(began); took > 6*time.Second || code != 0 {
				t.Errorf("ended after %v with exit code %d, want 0 within 6 s", took, code)
			}
			if h.count() != 0 {
				t.Fatal("something was delivered")
			}

			h.now(answer(http.StatusOK))
			proxy.Unblock()
			again := startFile(t, file)
			poll(t, "what was owed", func() bool { return h.count() >= 102 })
			again.expect(t, "out deleted "+ns+"/m-8")
			var want []string
			for i := range 100 {
				want = append(want, fmt.Sprintf("hook added %s/m-%d", ns, i))
			}
			want = append(want, "hook deleted "+ns+"/m-7", "hook deleted "+ns+"/m-8")
			exactly(t, summary(h.delivered()), want)
			if n := len(again.all()); n != 1 {
				t.Errorf("the other route got %q, want what happened meanwhile", summary(again.all()))
			}
		})
	}
}
