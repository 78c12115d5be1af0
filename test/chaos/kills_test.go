package chaos

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// TestLedgerOfManyRoutes kills the router again and again under load. It has a route to standard output and two to webhooks that are
// unavailable one time in four, one of them with a single worker. All get the last state of everything and every delete of what they
// were given; in no life does an object go backwards.
func TestLedgerOfManyRoutes(t *testing.T) {
	const objects, perLife = 40, 40
	kills := scaled(t, 10)
	s := sandboxtest.Start(t)
	ns := s.Namespace(t)
	maps := routertest.Use(t, s, routertest.ConfigMaps, ns)
	h := newReceiver(t, func(*http.Request) int {
		if rand.IntN(4) == 0 { //nolint:gosec // no secret
			return http.StatusServiceUnavailable
		}
		return http.StatusOK
	})
	file := routertest.Install(t, s.Kubeconfig(), "")
	head, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	path := func(route string, life int) string { return fmt.Sprintf("/%s/%d", route, life) }
	next := func(life int) *routertest.Router { // every life says which one it is
		config := string(head) + fmt.Sprintf(threeRoutes, ns, h.URL+path("every", life), h.URL+path("narrow", life))
		if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		return routertest.StartFile(t, file)
	}
	out := newLedger(t)
	books := map[string]*ledger{"every": newLedger(t), "narrow": newLedger(t)}
	for _, b := range books {
		b.alive, b.uidOf = out.alive, out.uidOf // what happened is the same for all
	}
	step := func() { out.step(maps, fmt.Sprintf("o-%d", rand.IntN(objects)), rand.IntN(4)) } //nolint:gosec // no secret
	for n := range kills {
		r := next(n)
		for range rand.IntN(2 * perLife) { //nolint:gosec // no secret
			step()
		}
		dieAnyTime(t, r)
		out.read(r.Events())
		for range perLife / 4 {
			step()
		}
	}
	last := next(kills)
	defer func() {
		if t.Failed() {
			t.Logf("out: %s; every: %s; narrow: %s", out.settled(last.Events()), books["every"].settled(h.life(path("every", kills))),
				books["narrow"].settled(h.life(path("narrow", kills))))
		}
	}()
	routertest.Poll(t, "the last state on standard output", func() bool { return out.settled(last.Events()) == "" })
	for name, b := range books {
		for n := range kills {
			b.read(h.life(path(name, n)))
		}
		routertest.Poll(t, "the last state at "+name, func() bool { return b.settled(h.life(path(name, kills))) == "" })
		b.read(h.life(path(name, kills)))
	}
	if code := last.Stop(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	before := h.count()
	r := next(kills + 1)
	r.Ready(t)
	maps.Make(routertest.ConfigMap("o-last", "1"))
	r.Expect(t, "all added "+ns+"/o-last")
	routertest.Poll(t, "the webhooks to get it", func() bool { return h.count() >= before+2 })
	if events := r.Events(); len(events) != 1 || h.count() != before+2 {
		t.Errorf("after a clean stop: %q and %d at the webhooks, want what is new", routertest.Summary(events), h.count()-before)
	}
}

const threeRoutes = `
sources: {maps: {resource: v1/configmaps, namespaces: %s}}
sinks: {out: {stdout: {}}, every: {webhook: {url: %q}}, narrow: {webhook: {url: %q}}}
define: {mine: object.metadata.name.startsWith("o-")}
routes:
  - {name: all, from: maps, filter: mine, existing: deliver, to: out, batch: {wait: 1ms}}
  - {name: every, from: maps, filter: mine, existing: deliver, to: every, batch: {size: 8, wait: 1ms}, retry: {backoff: 1ms, max: 20ms}}
  - {name: narrow, deliver: latest, from: maps, filter: mine, existing: deliver, to: narrow, concurrency: 1, batch: {size: 1}, retry: {backoff: 1ms, max: 20ms}}
`

// TestLedgerAcrossGaps kills the router, and the history of what happens while it is down is lost each time: what it knows of the
// objects that it has just begun to deliver has to do.
func TestLedgerAcrossGaps(t *testing.T) {
	s := sandboxtest.New(t, sandboxtest.Options{})
	ns := s.Namespace(t)
	maps := routertest.Use(t, s, routertest.ConfigMaps, ns)
	file := routertest.Install(t, s.Kubeconfig(), fmt.Sprintf(`
sources: {maps: {resource: v1/configmaps, namespaces: %s}}
sinks: {out: {stdout: {}}}
routes: [{name: all, from: maps, filter: object.metadata.name.startsWith("o-"), existing: deliver, to: out, batch: {wait: 1ms}}]
`, ns))
	book := newLedger(t)
	for range scaled(t, 4) {
		r := routertest.StartFile(t, file)
		r.Ready(t)
		before := len(r.Events())
		for range 20 + rand.IntN(40) { //nolint:gosec // no secret
			book.step(maps, fmt.Sprintf("o-%d", rand.IntN(40)), rand.IntN(4)) //nolint:gosec // no secret
		}
		r.Wait(t, "anything", func(events []routertest.Event) bool { return len(events) > before }) // no cut has it all yet
		r.Kill(t)
		book.read(r.Events())
		for range 30 {
			book.step(maps, fmt.Sprintf("o-%d", rand.IntN(40)), rand.IntN(2)) //nolint:gosec // no secret
		}
		s.KillAPIServer(t)
		s.CompactEtcd(t)
		s.StartAPIServer(t)
	}
	last := routertest.StartFile(t, file)
	problem := ""
	defer func() {
		if t.Failed() {
			t.Log(problem)
		}
	}()
	routertest.Poll(t, "the last state", func() bool { problem = book.settled(last.Events()); return problem == "" })
	book.read(last.Events())
}

// dieAnyTime kills the router at once, after something arrived, or a while later.
func dieAnyTime(t *testing.T, r *routertest.Router) {
	t.Helper()
	switch rand.IntN(3) { //nolint:gosec // no secret
	case 0:
		r.Wait(t, "anything", func(events []routertest.Event) bool { return len(events) > 0 })
	case 1:
		<-time.After(time.Duration(rand.IntN(1500)) * time.Millisecond) //nolint:gosec // no secret
	}
	r.Kill(t)
}

// TestRestartAgainstColdStart measures how long it takes until the first delta of now is delivered, by a router that has a state and by
// one that has none. The numbers are for the log.
func TestRestartAgainstColdStart(t *testing.T) {
	n := 2000
	if long(t) > 0 {
		n = 10_000
	}
	s := sandboxtest.Start(t)
	ns := s.Namespace(t)
	maps := routertest.Use(t, s, routertest.ConfigMaps, ns)
	createMany(t, s, ns, "m", n)
	config := fmt.Sprintf(`
sources: {maps: {resource: v1/configmaps, namespaces: %s}}
sinks: {out: {stdout: {}}}
routes: [{name: all, from: maps, to: out}]
`, ns)
	warm := routertest.Install(t, s.Kubeconfig(), config)
	r := routertest.StartFile(t, warm)
	r.Ready(t)
	if code := r.Stop(t); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	measure := func(file, mark string) time.Duration {
		began := time.Now()
		r := routertest.StartFile(t, file)
		// The cold one must have listed before: what it finds is not new to it.
		routertest.PollEvery(t, 2*time.Millisecond, "readiness", func() bool { code, _ := r.Get(t, "/readyz"); return code == http.StatusOK })
		maps.Make(routertest.ConfigMap(mark, "1"))
		events := r.Expect(t, "all added "+ns+"/"+mark)
		took := time.Since(began)
		if len(events) != 1 {
			t.Errorf("%d events", len(events))
		}
		r.Stop(t)
		return took
	}
	var cold, restarted time.Duration
	for i := range 3 {
		c := measure(routertest.Install(t, s.Kubeconfig(), config), fmt.Sprintf("cold-%d", i))
		// The one that restarts has to catch up with the mark of the cold one first.
		r := routertest.StartFile(t, warm)
		r.Expect(t, fmt.Sprintf("all added %s/cold-%d", ns, i))
		r.Stop(t)
		w := measure(warm, fmt.Sprintf("warm-%d", i))
		if i == 0 || c < cold {
			cold = c
		}
		if i == 0 || w < restarted {
			restarted = w
		}
	}
	t.Logf("%d objects, best of three: cold start %v, restart %v: a ratio of %.2f",
		n, cold.Round(time.Millisecond), restarted.Round(time.Millisecond), float64(restarted)/float64(cold))
	if lists := strings.Count(r.Log(), "listed again"); lists > 0 {
		t.Errorf("%d lists", lists)
	}
}
