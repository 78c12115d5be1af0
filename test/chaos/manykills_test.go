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
	"github.com/deltarouter/deltarouter/test/effort"
	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// The routes of TestLedger: one to standard output, one to a webhook that is sometimes unavailable,
// sometimes for a whole life, and one to another webhook, with a single worker, that delivers only
// the latest pending state.
const ledgerRoutes = `
sources: {maps: {resource: v1/configmaps, namespaces: %s}}
sinks: {out: {stdout: {}}, every: {webhook: {url: %q}}, narrow: {webhook: {url: %q}}}
define: {mine: object.metadata.name.startsWith("o-")}
routes:
  - {name: all, from: maps, filter: mine, existing: deliver, to: out, batch: {wait: 1ms}}
  - {name: every, from: maps, filter: mine, existing: deliver, to: every, batch: {size: 8, wait: 1ms}, retry: {backoff: 1ms, max: 20ms}}
  - {name: narrow, deliver: latest, from: maps, filter: mine, existing: deliver, to: narrow, concurrency: 1, batch: {size: 1}, retry: {backoff: 1ms, max: 20ms}}
`

// TestLedger kills the router again and again during a known history, at each of five moments
// before any comes again. CHAOS_SEED sets the history, which has groups of updates and deletes with
// one resourceVersion. In some lives the watch is cut and its next stream is barren. Then it
// compares the history with the deliveries on each of three routes:
//
//   - Everything was delivered: each version and each delete of each object. The route that
//     delivers only the latest state delivered the last version of each existing object, and the
//     delete of each other object of which it had delivered anything.
//   - Within one life of the router no event is repeated, and no object goes backwards.
//   - After a kill, an event may be repeated, or follow a later one of its object, only if it was
//     pending at the last cut or came later. The state file of the killed router has the applied
//     resourceVersion of the watch and the pending deltas.
//   - Events that were delivered when the queues were empty, before a cut began, are never
//     repeated.
//   - Only the first start lists.
//   - After a clean stop nothing is delivered.
func TestLedger(t *testing.T) {
	// Guarantee: restart-resumes, kills-lose-nothing, repeats-bounded, no-repeats-in-a-run
	// Guarantee: deletes-unnoticed
	t.Parallel()
	objects, kills := effort.Rounds(150, 150, 5000), effort.Rounds(6, 10, 200)
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

// lives are consecutive routers with one state folder.
type lives struct {
	s       *sandboxtest.Sandbox
	proxy   *sandboxtest.Scissors
	ns      string
	file    string
	head    string // the beginning of the configuration
	random  *rand.Rand
	history *history
	hook    *receiver
	down    *atomic.Bool // the webhook of the route every is unavailable
	watch   string       // its id in the state file
	ended   []life
	moments []int // of the next kills
}

// life is one run of the router: its deliveries and its final state file.
type life struct {
	router *routertest.Router
	// sure is the number of its deliveries, by route, that were complete at a cut; nil: unknown.
	sure map[string]int
	// fed is the applied resourceVersion in the state file at its end, owed the pending deltas.
	fed  int
	owed map[string]map[mark]bool // by route
}

// mark is one version of an object, or its delete.
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
	s := sandboxtest.Borrow(t) // whose own count of requests is compared
	ns := s.Namespace(t)
	proxy := s.Scissors(t)
	file := routertest.Install(t, proxy.Kubeconfig(), "")
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
		s: s, proxy: proxy, ns: ns, file: file, head: string(head), random: rand.New(rand.NewPCG(seed, 1<<32)),
		history: newHistory(t, s, ns), hook: newReceiver(t, flaky),
		down: down, watch: informer.Spec{Resource: routertest.ConfigMaps, Namespace: ns}.ID(),
	}
}

// configure gives the next router paths of the webhooks with its number.
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

// live runs one life, from a start to a kill at a random moment. r may run already.
func (l *lives) live(t *testing.T, r *routertest.Router) {
	t.Helper()
	var sure map[string]int
	if l.random.IntN(2) == 0 {
		// Two barren streams are the most after which the watch goes on where it was: the one that
		// is cut, possibly before its first event, and the next.
		l.proxy.After(l.ns, l.random.IntN(20_000))
		l.proxy.Dry(l.ns, 1, l.random.IntN(len(sandboxtest.Barren)))
	}
	if len(l.moments) == 0 {
		l.moments = l.random.Perm(5)
	}
	kind := l.moments[0]
	l.moments = l.moments[1:]
	l.down.Store(kind > 2 && l.random.IntN(2) == 0) // its backlog survives several lives
	switch {
	case kind == 0 && r == nil: // during its start
		l.configure(t)
		r = routertest.Launch(t, l.file)
		l.wait(250 * time.Millisecond)
	case kind <= 1: // after some deliveries
		r = l.running(t, r)
		n := 1 + l.random.IntN(200)
		r.Wait(t, fmt.Sprintf("%d deliveries", n), func(events []routertest.Event) bool { return len(events) >= n })
	case kind == 2: // after a cut with everything
		r = l.running(t, r)
		sure = l.settle(t, r)
		l.wait(700 * time.Millisecond)
	case kind == 3: // after a cut in the middle
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

// settle stops the history until everything was delivered and is in a cut, and returns the numbers
// of deliveries. Empty queues are no proof while the watch is barren: they may be empty because the
// changes have not arrived.
func (l *lives) settle(t *testing.T, r *routertest.Router) map[string]int {
	t.Helper()
	r.Ready(t)
	l.history.gate.Lock()
	defer l.history.gate.Unlock()
	n := len(l.ended)
	l.arrived(t, n, r)
	routertest.Poll(t, "empty queues", func() bool { return r.Metric(t, "deltarouter_route_queue_deltas") == 0 })
	sure := map[string]int{
		"all": len(r.Events()), "every": len(l.hook.life(hookPath("every", n))), "narrow": len(l.hook.life(hookPath("narrow", n))),
	}
	// Deliveries in progress during this count are not complete.
	routertest.Poll(t, "empty queues", func() bool { return r.Metric(t, "deltarouter_route_queue_deltas") == 0 })
	r.Saved(t)
	return sure
}

// arrived waits until the last state of each object was delivered to every route. The history has
// stopped; r is the running router, of that life.
func (l *lives) arrived(t *testing.T, life int, r *routertest.Router) {
	t.Helper()
	for _, route := range ledgerNames {
		book := l.history.book(t)
		for n := range life {
			take(l.delivered(route, n), book.seen, book.deleted)
		}
		events := r.Events
		if route != "all" {
			events = func() []routertest.Event { return l.hook.life(hookPath(route, life)) }
		}
		routertest.Poll(t, "the last state on route "+route, func() bool { return book.settled(events()) == "" })
	}
}

// left reads a copy of the state file of a killed router: opening it would repair it.
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
	saved.fed = number(watch.Applied)
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

// again reports whether an event may be repeated in the next life.
func (f *life) again(route string, m mark) bool { return m.version > f.fed || f.owed[route][m] }
