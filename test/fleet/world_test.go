package fleet_test

import (
	"cmp"
	"context"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"k8s.io/client-go/dynamic"

	"github.com/deltarouter/deltarouter/test/fleet"
	"github.com/deltarouter/deltarouter/test/fleet/ledger"
	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/natstest"
	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
	"github.com/deltarouter/deltarouter/test/tcpproxy"
)

func TestMain(m *testing.M) { routertest.Main(m) }

// patience bounds each wait. A successful test does not wait so long.
const patience = 4 * time.Minute

const (
	fleetName = "test"
	members   = 2 // 1: a router without a fleet
	workers   = 3
	pending   = 16 // messages of a partition that a worker has at most
)

// binary is the router, or that of the environment variable FLEET_ROUTER: one whose fence is taken
// out must fail.
func binary() string { return cmp.Or(os.Getenv("FLEET_ROUTER"), routertest.Command().Path) }

// settings are the parts of the configuration that rounds change.
type settings struct {
	namespace  string
	partitions int  // of the route every; 0: no route has workers
	gathered   bool // the route keyed has no workers
	backoff    int  // milliseconds, of the route every
	narrow     bool // the routes with a condition do not see their objects
}

// config returns the configuration. The routes every, keyed and local deliver each change, latest
// the last state; held has a condition, limited a limit. local has no workers. Behind the route
// upstream, which has the condition without its duration, the route behind has a limit.
func (s *settings) config() string {
	workers := func(partitions int) string {
		if s.partitions == 0 {
			return ""
		}
		return fmt.Sprintf(", workers: {partitions: %d, pending: %d}", partitions, pending)
	}
	var b strings.Builder
	scope := "!hidden"
	if s.narrow {
		scope = "hidden"
	}
	fmt.Fprintf(&b, "sources:\n  maps: {resource: v1/configmaps, namespaces: %s}\n  scoped: {resource: v1/configmaps, namespaces: %[1]s, labelSelector: %q}\nsinks:\n", s.namespace, scope)
	for _, sink := range []string{"every", "latest", "keyed", "local", "rules"} {
		fmt.Fprintf(&b, "  %s: {webhook: {url: %q}}\n", sink, fleet.ReceiverURL+sink)
	}
	b.WriteString("define:\n  plain: object.metadata.name.startsWith(\"o-\")\n")
	b.WriteString("  bad: object.metadata.name.startsWith(\"c-\") && object.data.value == \"bad\"\nroutes:\n")
	routeOf := func(source, text, more string) {
		fmt.Fprintf(&b, "  - {from: %s, batch: {wait: 1ms}, existing: deliver, %s%s}\n", source, text, more)
	}
	route := func(text, more string) { routeOf("maps", text, more) }
	keyed := workers(2)
	if s.gathered {
		keyed = ""
	}
	retry := "retry: {backoff: %dms, max: 100ms}"
	route(fmt.Sprintf("name: every, filter: plain, deliver: every, to: every, "+retry, s.backoff), workers(s.partitions))
	route("name: keyed, filter: plain, deliver: every, key: object.metadata.labels.team, to: keyed, "+fmt.Sprintf(retry, 1), keyed)
	route("name: latest, filter: plain, deliver: latest, to: latest, "+fmt.Sprintf(retry, 1), workers(2))
	route("name: local, filter: plain, deliver: every, to: local, "+fmt.Sprintf(retry, 1), "")
	routeOf("scoped", `name: held, when: bad, for: 1s, to: rules`, workers(1))
	routeOf("scoped", `name: upstream, when: bad, to: {route: behind}`, "")
	fmt.Fprintf(&b, "  - {name: behind, limit: {key: object.metadata.name, every: 1h}, to: rules%s}\n", workers(1))
	route(fmt.Sprintf(`name: limited, filter: 'object.metadata.name.startsWith("l-")', deliver: every, limit: {key: object.metadata.name, every: 1h, burst: %d}, to: rules`, burst), workers(1))
	return b.String()
}

// burst is the number of events of an object that the route limited delivers.
const burst = 3

// world is a running fleet with what the rounds know about it.
type world struct {
	t        *testing.T
	settings settings
	fleet    *fleet.Fleet
	receiver *fleet.Receiver
	nats     *natstest.Cluster
	js       jetstream.JetStream
	ways     map[string]*way // by process
	cluster  dynamic.Interface
	maps     dynamic.ResourceInterface
	together func(context.Context, []sandboxtest.Edit) (version string, err error)
	random   *rand.Rand

	seed   maphash.Seed
	before *ledger.History // of the former round
	known  map[uint64]bool // the events of earlier rounds, by a hash of route and id
	rules  *rules          // of this round

	changes *fleet.Changes // of this round
}

// way is the network between a process and the servers.
type way struct {
	nats    []*tcpproxy.Proxy
	api     *sandboxtest.Proxy
	watches *sandboxtest.Scissors // behind api
}

func newWorld(t *testing.T, seed uint64) *world {
	t.Helper()
	s, ns := sandboxtest.StartNamespace(t)
	w := &world{
		t: t, settings: settings{namespace: ns, backoff: 1}, receiver: fleet.NewReceiver(), ways: map[string]*way{},
		cluster: s.Dynamic(), maps: s.Dynamic().Resource(routertest.ConfigMaps).Namespace(ns),
		random: rand.New(rand.NewPCG(seed, 1)), seed: maphash.MakeSeed(), known: map[uint64]bool{},
	}
	w.together = func(ctx context.Context, edits []sandboxtest.Edit) (string, error) {
		return s.Together(ctx, "/registry/configmaps/"+ns+"/", edits)
	}
	t.Cleanup(w.receiver.Close)
	o := fleet.Options{
		Router: binary(), Dir: t.TempDir(), Name: fleetName, Namespace: ns, Members: members, Workers: workers,
		Kubeconfig: s.Kubeconfig(), Receiver: w.receiver.Addr(),
	}
	if workers > 0 {
		w.settings.partitions = 4
	}
	if members > 1 {
		w.nats = natstest.Start(t, natstest.Config{Servers: 3})
		_, w.js = w.nats.Connect(t)
		o.NATS = w.nats.URLs()
		o.Ways = func(name string) ([]string, string) {
			proxies, urls := w.nats.Proxy(t)
			watches, api := s.BarrenProxy(t)
			w.ways[name] = &way{nats: proxies, api: api, watches: watches}
			return strings.Split(urls, ","), api.Kubeconfig()
		}
	}
	var err error
	w.fleet, err = fleet.New(o, w.settings.config())
	must.Succeed(t, err)
	t.Cleanup(w.close)
	must.Succeed(t, w.fleet.Start())
	w.leader()
	return w
}

func (w *world) close() {
	w.fleet.Close()
	if w.t.Failed() {
		for _, n := range w.fleet.Nodes() {
			w.t.Log(n.Tail())
		}
	}
}

// wait waits until problem returns nil.
func (w *world) wait(what string, problem func() error) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(25 * time.Millisecond)
	defer tick.Stop()
	for {
		err := problem()
		if err == nil {
			return
		}
		for _, n := range w.fleet.Nodes() {
			if n.Crashed() {
				w.t.Fatalf("%s ended with code %d", n.Name, n.Code())
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			w.t.Fatalf("waited in vain for %s: %v", what, err)
		}
	}
}

// leader waits until a member leads and is ready, and returns it.
func (w *world) leader() (leader *fleet.Node) {
	w.t.Helper()
	w.wait("a leader", func() (err error) {
		leader, err = w.fleet.Leader(w.t.Context(), w.cluster)
		return err
	})
	return leader
}

// follower waits until another member than the former leader leads, and returns it.
func (w *world) follower(former *fleet.Node) (leader *fleet.Node) {
	w.t.Helper()
	w.wait("another leader", func() error {
		if leader = w.leader(); leader == former {
			return fmt.Errorf("%s leads", former.Name)
		}
		return nil
	})
	return leader
}

// standby returns a member that does not lead, after it has all checkpoints of the leader.
func (w *world) standby() *fleet.Node {
	w.t.Helper()
	leader := w.leader()
	for _, n := range w.fleet.Members {
		if n != leader {
			w.follows(n)
			return n
		}
	}
	w.t.Fatal("no standby")
	return nil
}

// follows waits until a standby has all checkpoints of the leader.
func (w *world) follows(n *fleet.Node) {
	w.t.Helper()
	w.wait("the standby", func() error { return fleet.Follows(n) })
}

// saved waits until everything that the leader has taken so far is in its state, and that of the
// standby.
func (w *world) saved() {
	w.t.Helper()
	leader := w.leader()
	for range 2 {
		last := leader.Metric("deltarouter_checkpoint_age_seconds")
		w.wait("a cut", func() error {
			age := leader.Metric("deltarouter_checkpoint_age_seconds")
			younger := age < last
			if last = age; !younger {
				return fmt.Errorf("the age of the last cut is %v", age)
			}
			return nil
		})
	}
	if members > 1 {
		w.standby()
	}
}

// flow waits until n more changes are delivered on the route local.
func (w *world) flow(n int) {
	w.t.Helper()
	before := len(w.receiver.Of("local"))
	w.wait("deliveries", func() error {
		if got := len(w.receiver.Of("local")) - before; got < n {
			return fmt.Errorf("%d deliveries, want %d", got, n)
		}
		return nil
	})
}

// settled waits until nothing is missing.
func (w *world) settled(h *ledger.History) {
	w.t.Helper()
	w.wait("the deliveries", func() error {
		for _, route := range routes {
			if missing := h.Missing(w.receiver.Of(route.name), route.rule); len(missing) > 0 {
				return fmt.Errorf("route %s: %q", route.name, missing)
			}
		}
		return nil
	})
}

// routes are those about the plain objects.
var routes = []struct { //nolint:gochecknoglobals // a constant
	name    string
	rule    ledger.Rule
	workers bool
}{
	{"every", ledger.Rule{}, true}, {"keyed", ledger.Rule{Keyed: true}, true}, {"latest", ledger.Rule{Latest: true}, true}, {"local", ledger.Rule{}, false},
}
