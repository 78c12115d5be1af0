package chaos

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/informer"
	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// The routes of TestLedger: to standard output, to a webhook that is unavailable now and then and
// sometimes for a whole life, and to another one with a single worker and only the latest state of
// what waits.
const ledgerRoutes = `
sources: {maps: {resource: v1/configmaps, namespaces: %s}}
sinks: {out: {stdout: {}}, every: {webhook: {url: %q}}, narrow: {webhook: {url: %q}}}
define: {mine: object.metadata.name.startsWith("o-")}
routes:
  - {name: all, from: maps, filter: mine, existing: deliver, to: out, batch: {wait: 1ms}}
  - {name: every, from: maps, filter: mine, existing: deliver, to: every, batch: {size: 8, wait: 1ms}, retry: {backoff: 1ms, max: 20ms}}
  - {name: narrow, deliver: latest, from: maps, filter: mine, existing: deliver, to: narrow, concurrency: 1, batch: {size: 1}, retry: {backoff: 1ms, max: 20ms}}
`

// TestLedger kills the router again and again while a known history happens; CHAOS sets how much
// longer than ten kills, CHAOS_SEED which history. Then it compares what happened with what was
// delivered, on each of three routes:
//
//   - Everything was delivered: each version and each end of each object; to the route that wants
//     the latest only, the last version of what exists, and the end of all else of which it had got
//     anything.
//   - Within one life of the router nothing comes twice, and no object goes back.
//   - What comes after a kill although it, or something later of its object, was delivered before
//     had been in flight at the last cut, or came since: the file that the kill left says how far
//     the watch had been fed, and what was owed.
//   - What had been delivered when the queues were empty, before a cut began, never comes again.
//   - After a clean stop nothing comes, and nothing is listed.
func TestLedger(t *testing.T) {
	objects, kills := 150, scaled(t, 10)
	if long(t) > 0 {
		objects = 5000
	}
	seed := rand.Uint64()
	if text := os.Getenv("CHAOS_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Log("CHAOS_SEED", seed)
	l := newLives(t, seed)
	first := l.start(t)
	first.Ready(t) // from here on every version is a delta
	first.Saved(t)
	stop := l.history.start(t, objects, seed)
	for n := range kills {
		if n == 0 {
			l.live(t, first)
		} else {
			l.live(t, nil)
		}
	}
	l.end(t, stop, objects, kills)
}

// lives are one router after the other on one state folder.
type lives struct {
	s       *sandboxtest.Sandbox
	ns      string
	file    string
	head    string // of the configuration
	random  *rand.Rand
	history *history
	hook    *receiver
	down    *atomic.Bool // the webhook of the route every takes nothing
	watch   string       // its id in the state file
	ended   []life
}

// life is what one router has delivered, and what it has left.
type life struct {
	router *routertest.Router
	// sure is how many of its deliveries, by route, a cut had as done; nil: it is not known.
	sure map[string]int
	// fed and owed are in the state file at its end.
	fed  int
	owed map[string]map[mark]bool // by route
}

// mark is one version of an object, or its end.
type mark struct {
	uid     string
	version int
	end     bool
}

func markOf(e routertest.Event) mark {
	return mark{e.K8sUID, number(e.K8sResourceVersion), strings.HasSuffix(e.Type, ".deleted")}
}

func newLives(t *testing.T, seed uint64) *lives {
	t.Helper()
	s, ns := sandboxtest.StartNamespace(t)
	file := routertest.Install(t, s.Kubeconfig(), "")
	head, err := os.ReadFile(file)
	must.Succeed(t, err)
	down := &atomic.Bool{}
	flaky := func(r *http.Request) int {
		if rand.IntN(10) == 0 || down.Load() && strings.HasPrefix(r.URL.Path, "/every/") { //nolint:gosec // no secret
			return http.StatusServiceUnavailable
		}
		return http.StatusOK
	}
	return &lives{
		s: s, ns: ns, file: file, head: string(head), random: rand.New(rand.NewPCG(seed, 1<<32)),
		history: newHistory(routertest.Use(t, s, routertest.ConfigMaps, ns)), hook: newReceiver(t, flaky),
		down: down, watch: informer.Spec{Resource: routertest.ConfigMaps, Namespace: ns}.ID(),
	}
}

// configure makes the next router tell the webhooks which one it is.
func (l *lives) configure(t *testing.T) {
	t.Helper()
	n := len(l.ended)
	config := l.head + fmt.Sprintf(ledgerRoutes, l.ns, l.hook.URL+hookPath("every", n), l.hook.URL+hookPath("narrow", n))
	must.Succeed(t, os.WriteFile(l.file, []byte(config), 0o600))
}

func hookPath(route string, life int) string { return fmt.Sprintf("/%s/%d", route, life) }

func (l *lives) start(t *testing.T) *routertest.Router {
	t.Helper()
	l.configure(t)
	return routertest.StartFile(t, l.file)
}

// live is one life, from a start to a kill at a random moment. r may run already.
func (l *lives) live(t *testing.T, r *routertest.Router) {
	t.Helper()
	var sure map[string]int
	kind := l.random.IntN(5)
	l.down.Store(kind > 2 && l.random.IntN(2) == 0) // what it is owed survives several lives
	switch {
	case kind == 0 && r == nil: // while it starts
		l.configure(t)
		r = routertest.Launch(t, l.file)
		l.wait(250 * time.Millisecond)
	case kind <= 1: // after some deliveries
		r = l.running(t, r)
		n := 1 + l.random.IntN(200)
		r.Wait(t, fmt.Sprintf("%d deliveries", n), func(events []routertest.Event) bool { return len(events) >= n })
	case kind == 2: // after a cut which has all that there is
		r = l.running(t, r)
		sure = l.settle(t, r)
		l.wait(700 * time.Millisecond)
	case kind == 3: // after a cut in the middle of everything
		r = l.running(t, r)
		r.Ready(t)
		r.Saved(t)
		l.wait(900 * time.Millisecond)
	default: // some time after it is ready
		r = l.running(t, r)
		r.Ready(t)
		l.wait(1200 * time.Millisecond)
	}
	r.Kill(t)
	l.down.Store(false)
	l.ended = append(l.ended, l.left(t, r, sure))
}

func (l *lives) running(t *testing.T, r *routertest.Router) *routertest.Router {
	t.Helper()
	if r == nil {
		r = l.start(t)
	}
	return r
}

func (l *lives) wait(most time.Duration) { <-time.After(time.Duration(l.random.Int64N(int64(most)))) }

// settle holds the history until everything was delivered and a cut has it, and returns how much
// was delivered by then.
func (l *lives) settle(t *testing.T, r *routertest.Router) map[string]int {
	t.Helper()
	r.Ready(t)
	l.history.gate.Lock()
	defer l.history.gate.Unlock()
	routertest.Poll(t, "empty queues", func() bool { return r.Metric(t, "deltarouter_route_queue_deltas") == 0 })
	n := len(l.ended)
	sure := map[string]int{
		"all": len(r.Events()), "every": len(l.hook.life(hookPath("every", n))), "narrow": len(l.hook.life(hookPath("narrow", n))),
	}
	// What was on its way to the sinks when this was counted is not done.
	routertest.Poll(t, "empty queues", func() bool { return r.Metric(t, "deltarouter_route_queue_deltas") == 0 })
	r.Saved(t)
	return sure
}

// left reads the state file that a killed router has left, or a copy of it: what reads it also
// mends it.
func (l *lives) left(t *testing.T, r *routertest.Router, sure map[string]int) life {
	t.Helper()
	data, err := os.ReadFile(stateOf(l.file))
	must.Succeed(t, err)
	path := filepath.Join(t.TempDir(), "state.db")
	must.Succeed(t, os.WriteFile(path, data, 0o600))
	db, err := checkpoint.Open(checkpoint.Config{Path: path})
	must.Succeed(t, err)
	defer func() { _ = db.Close(); _ = os.Remove(path) }()
	if db.Quarantined() != "" {
		t.Fatalf("a kill has damaged the state file after %d lives", len(l.ended))
	}
	saved := life{router: r, sure: sure, owed: make(map[string]map[mark]bool)}
	watch, err := db.LoadWatch(l.watch)
	if err != nil || watch == nil || watch.Relisting {
		t.Fatalf("the watch in the state file: %+v, %v", watch, err)
	}
	saved.fed = number(watch.Fed)
	for _, route := range ledgerNames {
		owed, err := db.LoadRoute(route, checkpoint.Part{}, func(string) *event.Resource { return nil })
		must.Succeed(t, err)
		saved.owed[route] = make(map[mark]bool)
		for _, o := range owed {
			object := o.Delta.Object()
			saved.owed[route][mark{object.UID(), number(object.ResourceVersion()), o.Delta.Op == event.Deleted}] = true
		}
	}
	return saved
}

// again reports whether an event may come again in the life after this one.
func (f *life) again(route string, m mark) bool { return m.version > f.fed || f.owed[route][m] }
