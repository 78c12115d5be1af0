package fleet_test

import (
	"fmt"
	"hash/maphash"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deltarouter/deltarouter/test/effort"
	"github.com/deltarouter/deltarouter/test/fleet"
	"github.com/deltarouter/deltarouter/test/fleet/ledger"
	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/routertest"
)

// seed returns the number in FLEET_SEED, or a random one.
func seed(t *testing.T) uint64 {
	t.Helper()
	text := os.Getenv("FLEET_SEED")
	if text == "" {
		return rand.Uint64()
	}
	n, err := strconv.ParseUint(text, 10, 64)
	must.Succeed(t, err)
	return n
}

// fleets is the number of fleets that share the rounds of TestLedger. They run at the same time,
// because a round mostly waits.
const fleets = 3

// TestLedger disturbs fleets in rounds while objects change, and compares the history of each round
// with the deliveries. Some changes of several objects have one resourceVersion. At each effort
// there is at least one round of each kind. FLEET_SEED sets the choice of rounds and changes of the
// first fleet, and the others count from it: the seed of a failed fleet is that of the first one in
// the next run. FLEET_KIND selects one kind of rounds.
//
//   - Each change is delivered on the routes every, keyed and local, and the last state of each
//     object on the route latest.
//   - The first deliveries of each object (keyed: of each key) are in order.
//   - Deliveries come again only after the loss of a process, in the order that they had, and no
//     more than it had in hand.
//   - A condition is reported once when it begins, and once when it ends, also if a narrower
//     configuration ends it.
//   - A limit lets exactly its number of changes pass, also behind a route with a condition.
//
// The test fails without each of these protections. To see that, take one out, build the router,
// and run the test with FLEET_ROUTER (its path) and the FLEET_KIND that is named here:
//
//   - The epoch: let all owners of a partition use one consumer. In internal/fleet/consume, the
//     name of a consumer has no epoch, takeover deletes no consumer and calls
//     CreateOrUpdateConsumer, remove deletes nothing, and dseq begins with Delivered.Consumer of
//     the consumer. "kill worker": changes are lost, because those that the dead worker had in hand
//     come after newer ones.
//   - The fence: take the call of expect out of send in internal/fleet/fence/wire.go. "late batch
//     of a dead leader": changes come again on routes with workers.
//   - The contiguity check: take the comparison of number with dseq out of take, and let missed
//     return false, in internal/fleet/consume/pull.go. "cut worker off NATS": changes are lost.
//   - The list in place of barren watches: let maxBarren in
//     pkg/informer/internal/reflector/proof.go be 1,000,000. "barren watches": the changes of that
//     time are missing, for minutes at least.
func TestLedger(t *testing.T) {
	// Guarantee: fleet-takeover, fleet-no-late-delivery, workers-deliver, barren-watch
	t.Parallel()
	seed := seed(t)
	var failed atomic.Bool
	for n := range uint64(fleets) {
		t.Run(fmt.Sprintf("fleet=%d", n), func(t *testing.T) {
			t.Parallel()
			defer func() { failed.Store(failed.Load() || t.Failed()) }()
			runRounds(t, seed+n, &failed)
		})
	}
}

// runRounds disturbs one fleet, until the rounds of any fleet have failed.
func runRounds(t *testing.T, seed uint64, failed *atomic.Bool) {
	t.Helper()
	t.Log("FLEET_SEED", seed)
	w := newWorld(t, seed)
	var all, share []kind
	for i, k := range kinds() {
		only := os.Getenv("FLEET_KIND")
		if only == "" || only == k.name {
			all = append(all, k)
		}
		if only == "" && uint64(i)%fleets == seed%fleets || only == k.name {
			share = append(share, k)
		}
	}
	order := shuffled(w.random, share) // of several fleets with consecutive seeds one has each kind
	total := map[string]int{}
	rounds := effort.Rounds(len(share), max(34, len(share)), 334)
	for n := 0; n < rounds && !failed.Load(); n++ {
		if len(order) == 0 { // each kind once before any comes again
			order = shuffled(w.random, all)
		}
		k := order[0]
		order = order[1:]
		began := time.Now()
		duplicates, changes := w.round(n, k)
		total[k.name]++
		t.Logf("round %d, %s: %d changes, duplicates %v, %v", n, k.name, changes, duplicates, time.Since(began).Round(10*time.Millisecond))
		if t.Failed() {
			t.Fatalf("round %d (%s) failed; FLEET_SEED=%d", n, k.name, seed)
		}
	}
	t.Logf("rounds: %v", total)
}

func shuffled(random *rand.Rand, kinds []kind) (order []kind) {
	for _, i := range random.Perm(len(kinds)) {
		order = append(order, kinds[i])
	}
	return order
}

// round makes changes, disturbs the fleet, waits until everything is delivered, and compares.
func (w *world) round(n int, k kind) (duplicates map[string]int, changes int) {
	w.t.Helper()
	ctx, h := w.t.Context(), &ledger.History{}
	c := &fleet.Changes{
		Maps: w.maps, History: h, Prefix: fmt.Sprintf("o-%d", n), Seed: w.random.Uint64(), Writers: 3, Pace: 20 * time.Millisecond, Most: 400,
		Together: w.together,
	}
	rules, lost := w.begin(n, k.loses), w.lost()
	w.changes = c
	stop := c.Start(ctx)
	allowed := k.do(w)
	must.Succeed(w.t, stop())
	w.end(rules)
	w.settled(h) // with the last states
	must.Succeed(w.t, c.Finish(ctx))
	w.settled(h)
	if members > 1 {
		w.standby() // a leader that was deposed has said so
	}
	now := w.lost()
	if allowed.leases = now.leases - lost.leases; allowed.leases > 0 {
		w.t.Logf("round %d: the workers lost %d partitions", n, allowed.leases)
	}
	if deposed := now.leaders - lost.leaders; deposed > 0 {
		w.t.Logf("round %d: %d leaders were deposed", n, deposed)
		allowed.leaders += deposed
	}
	// The state was saved before the loss of one leader, but not before that of another one.
	w.check(rules, allowed.leaders == 0 || k.loses && allowed.leaders == 1)
	return w.compare(h, allowed), h.Len()
}

// lost counts what the processes say that they have lost so far.
func (w *world) lost() (all allowance) {
	all.leaders, all.leases = w.fleet.Lost()
	return all
}

// rules are an object with a condition, and an object with a limit.
type rules struct {
	held, limited *unstructured.Unstructured

	told []string // the reports of the condition before its end
}

// begin makes the objects of a round for the routes with rules, and waits until the state has what
// the routes know about them, if the leader will be lost.
func (w *world) begin(n int, loses bool) *rules {
	w.t.Helper()
	create := func(name string) *unstructured.Unstructured {
		o, err := w.maps.Create(w.t.Context(), routertest.ConfigMap(name, "bad"), metav1.CreateOptions{})
		must.Succeed(w.t, err)
		return o
	}
	r := &rules{held: create(fmt.Sprintf("c-%d", n)), limited: create(fmt.Sprintf("l-%d", n)), told: []string{"entered"}}
	w.rules = r
	w.patch(r.limited, "1")
	w.wait("the events of the limit", func() error {
		return problem(ledger.Counts(w.about("limited", r.limited), map[string]int{uid(r.limited): 2}))
	})
	w.wait("the event of the limit behind the condition", func() error {
		return problem(ledger.Reports(w.about("behind", r.held), map[string][]string{uid(r.held): {"entered"}}))
	})
	if w.random.IntN(2) == 0 { // else the condition begins to be reported during the round
		w.reported(r, "entered")
	}
	if loses {
		w.saved()
	}
	return r
}

func uid(o *unstructured.Unstructured) string { return string(o.GetUID()) }

func (w *world) patch(o *unstructured.Unstructured, value string) {
	w.t.Helper()
	patch := fmt.Appendf(nil, `{"data":{"value":%q}}`, value)
	_, err := w.maps.Patch(w.t.Context(), o.GetName(), types.MergePatchType, patch, metav1.PatchOptions{})
	must.Succeed(w.t, err)
}

// about returns the deliveries of a route about an object.
func (w *world) about(route string, o *unstructured.Unstructured) []ledger.Delivery {
	return slices.DeleteFunc(w.receiver.Of(route), func(d ledger.Delivery) bool { return d.UID != uid(o) })
}

// problem returns the first of some problems as an error.
func problem(all []string) error {
	if len(all) == 0 {
		return nil
	}
	return fmt.Errorf("%s", all[0])
}

// reported waits until the condition has exactly these reports.
func (w *world) reported(r *rules, want ...string) {
	w.t.Helper()
	w.wait("the reports of the condition", func() error {
		return problem(ledger.Reports(w.about("held", r.held), map[string][]string{uid(r.held): want}))
	})
}

// end changes the objects with rules after the disturbance, and waits for the reports.
func (w *world) end(r *rules) {
	w.t.Helper()
	w.reported(r, r.told...)
	w.patch(r.held, "good")
	for i := range burst {
		w.patch(r.limited, strconv.Itoa(i+2))
	}
	r.told = append(r.told, "left")
	w.reported(r, r.told...)
	w.wait("the events of the limit", func() error {
		if got := ledger.Different(w.about("limited", r.limited)); got < burst {
			return fmt.Errorf("%d events, want %d", got, burst)
		}
		return nil
	})
}

func (w *world) limit(r *rules) []string {
	return ledger.Counts(w.about("limited", r.limited), map[string]int{uid(r.limited): burst})
}

// check compares the events of the rules, after all others of the round are delivered, and removes
// the objects. The limit is exact unless a leader was lost with what it did since the last cut.
func (w *world) check(r *rules, exact bool) {
	w.t.Helper()
	behind := w.about("behind", r.held)
	problems := append(w.limit(r), ledger.Reports(behind, map[string][]string{uid(r.held): {"entered"}})...)
	if !exact {
		problems = nil
	}
	for _, p := range append(problems, ledger.Reports(w.about("held", r.held), map[string][]string{uid(r.held): r.told})...) {
		w.t.Error(p)
	}
	for _, o := range []*unstructured.Unstructured{r.held, r.limited} {
		must.Succeed(w.t, w.maps.Delete(w.t.Context(), o.GetName(), metav1.DeleteOptions{}))
	}
}

// compare checks all deliveries of a round, and returns the number of duplicates by route.
func (w *world) compare(h *ledger.History, allowed allowance) map[string]int {
	w.t.Helper()
	all, duplicates := w.receiver.Clear(), map[string]int{}
	for _, p := range w.receiver.Invalid() {
		w.t.Error(p)
	}
	for _, route := range routes {
		rule := route.rule
		if !route.workers || route.rule.Latest || route.name == "keyed" && w.settings.gathered {
			rule.Returns, rule.Duplicates = allowed.leaders, allowed.leaders*h.Len()
		} // else a new leader knows what the former one has published to the workers
		if route.workers {
			rule.Returns += allowed.workers + allowed.leases
			rule.Duplicates += (allowed.workers*max(w.settings.partitions, 2) + allowed.leases) * pending
		}
		w.deliverers(route.name, all[route.name])
		var own []ledger.Delivery
		late := 0
		for _, d := range all[route.name] {
			switch {
			case h.Knows(d.UID):
				own = append(own, d)
			case w.known[w.hash(d)]:
				late++
			case route.rule.Latest && w.before != nil && w.before.Knows(d.UID):
				// It was created and deleted while the sink was unavailable, and a retry of its
				// first delivery had begun: the round did not wait for it.
			default:
				w.t.Errorf("route %s: %s of %s by %s is of no object of this round, and comes for the first time", route.name, d.Op, d.UID, d.By)
			}
		}
		rule.Duplicates -= late
		again, problems := h.Check(own, rule)
		for _, p := range problems {
			w.t.Errorf("route %s: %s", route.name, p)
		}
		if again+late > 0 {
			duplicates[route.name] = again + late
		}
	}
	w.deliverers("held", all["held"])
	w.deliverers("limited", all["limited"])
	w.deliverers("behind", all["behind"])
	w.before = h
	for d := range maps.Values(all) {
		for _, one := range d {
			w.known[w.hash(one)] = true
		}
	}
	return duplicates
}

// deliverers checks that workers deliver for the routes with workers, and the leader for the
// others.
func (w *world) deliverers(route string, all []ledger.Delivery) {
	w.t.Helper()
	if route == "keyed" {
		return // a round moves it
	}
	want := "member-"
	if workers > 0 && route != "local" {
		want = "worker-"
	}
	for _, d := range all {
		if !strings.HasPrefix(d.By, want) {
			w.t.Errorf("route %s: delivered by %q", route, d.By)
			return
		}
	}
}

func (w *world) hash(d ledger.Delivery) uint64 {
	return maphash.Comparable(w.seed, [2]string{d.Route, d.ID})
}
