package chaos

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/test/effort"
	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// TestLedgerAcrossGaps kills the router several times, and drops the history of the changes while
// it is down. The state that it saved about the objects before their first delivery must suffice.
// In every other life all streams of its watch are barren for a while, and a list must bring the
// changes.
func TestLedgerAcrossGaps(t *testing.T) {
	// Guarantee: kills-across-gaps, barren-watch
	t.Parallel()
	s := sandboxtest.Borrow(t)
	ns := s.Namespace(t)
	maps := routertest.Use(t, s, routertest.ConfigMaps, ns)
	proxy := s.Scissors(t)
	file := routertest.Install(t, proxy.Kubeconfig(), fmt.Sprintf(`
sources: {maps: {resource: v1/configmaps, namespaces: %s}}
sinks: {out: {stdout: {}}}
routes: [{name: all, from: maps, filter: object.metadata.name.startsWith("o-"), existing: deliver, to: out, batch: {wait: 1ms}}]
`, ns))
	book := newLedger(t)
	for round := range effort.Rounds(2, 4, 80) {
		r := routertest.StartFile(t, file)
		r.Ready(t)
		if round%2 == 1 {
			book.step(maps, "o-0", 1)                  // arrives when the watch is open
			kind := rand.IntN(len(sandboxtest.Barren)) //nolint:gosec // no secret
			barrenFor(t, proxy, r, ns, kind, func() {
				for range 30 {
					book.step(maps, fmt.Sprintf("o-%d", rand.IntN(40)), rand.IntN(4)) //nolint:gosec // no secret
				}
			}, func() string { return book.settled(r.Events()) })
		}
		before := len(r.Events())
		for range 20 + rand.IntN(40) { //nolint:gosec // no secret
			book.step(maps, fmt.Sprintf("o-%d", rand.IntN(40)), rand.IntN(4)) //nolint:gosec // no secret
		}
		// no cut contains all of it yet
		r.Wait(t, "anything", func(events []routertest.Event) bool { return len(events) > before })
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

// TestRestartAgainstColdStart measures the time to the first delivery of a new delta, for a router
// with a state folder and for one without. It logs the results.
func TestRestartAgainstColdStart(t *testing.T) {
	t.Parallel()
	n := effort.Rounds(500, 2000, 10_000)
	s, ns := sandboxtest.StartNamespace(t)
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
		// The cold one must have listed before, because the objects of its list are not new to it.
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
		// The restarted one must catch up with the mark of the cold one first.
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
