package chaos

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/test/effort"
	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// The routes of TestRulesLedger have one condition. The first reports at once; the second after a
// second, with a reminder each second; the third at most five at once and one a second of each
// group. Behind the first one are a route with a debounce, one with a limit, and one with groups.
const rulesRoutes = `
sources: {maps: {resource: v1/configmaps, namespaces: %s%s}}
sinks: {out: {stdout: {}}}
define: {bad: object.data.value == "bad"}
routes:
  - {name: state, from: maps, when: bad, existing: deliver, to: [out, {route: calm}, {route: few}, {route: joined}], batch: {wait: 1ms}}
  - {name: lasting, from: maps, when: bad, for: 1s, every: 1s, existing: deliver, to: out, batch: {wait: 1ms}}
  - {name: limited, from: maps, when: bad, limit: {key: object.metadata.labels.group, every: 1s, burst: 5}, existing: deliver, to: out}
  - {name: calm, debounce: {quiet: 50ms, max: 500ms}, to: out}
  - {name: few, limit: {key: 'object.metadata.name.substring(2, 3)', every: 1s}, emit: '{"suppressed": suppressed}', to: out}
  - {name: joined, batch: {by: 'object.metadata.name.substring(2, 3)', wait: 300ms}, emit: '{"ids": events.map(e, e.id)}', to: out}
`

// TestRulesLedger kills the router again and again while objects become bad and good, and are made
// and deleted. CHAOS_SEED sets the history. In between, a narrower
// configuration takes some objects away from the routes, and a later one gives them back. Then it
// compares the history with the reports. A report that is repeated after a kill has the same id and
// counts once. A time during which an object was bad ends when the routes do not see the object any
// more, and begins again when they see it again.
//
//   - state: for each object exactly the times during which it was bad, in order: entered with the
//     version at the begin of each, and left if it ended.
//   - lasting: entered and left alternate, each about one of those times. entered is at least a
//     second after its begin, and reminders are at least a second apart. Whenever there are no
//     changes for a while, exactly the objects that are bad are reported.
//   - limited: left of each group follows entered. The reported and the suppressed counts together
//     are at least the times in the group, and the reports never exceed the limit. Whenever there
//     are no changes for a while, each bad object was reported, and the end of each group without
//     one.
//   - calm: as state.
//   - few: the events and their suppressed counts together are at least the events of state, and
//     the events never exceed the limit.
//   - joined: the groups have each event of state.
func TestRulesLedger(t *testing.T) {
	// Guarantee: limit, conditions-alternate, conditions-late, left-unseen
	t.Parallel()
	seed, began := rand.Uint64(), time.Now()
	if text := os.Getenv("CHAOS_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Log("CHAOS_SEED", seed)
	s, ns := sandboxtest.StartNamespace(t)
	file := routertest.Install(t, s.Kubeconfig(), "")
	head, err := os.ReadFile(file)
	must.Succeed(t, err)
	b := &ruleBook{
		maps: routertest.Use(t, s, routertest.ConfigMaps, ns), random: rand.New(rand.NewPCG(seed, 1)),
		head: string(head), ns: ns, began: began, names: make(map[string]*lampLife),
	}
	routertest.Exchange(t, file, b.config())
	first := routertest.StartFile(t, file)
	first.Ready(t) // from here on every version is a delta
	first.Saved(t)
	stop := b.start(t)
	first.Wait(t, "events", func(events []routertest.Event) bool { return len(events) >= 20 })
	first.Kill(t)
	b.read(t, first.Events())
	kills := effort.Rounds(3, 6, 120)
	for n := range kills {
		b.live(t, file, n)
	}
	stop()
	b.finish(t, file)
	if b.unseen == 0 {
		t.Error("no condition ended because of a narrower configuration")
	}
	t.Logf("%d changes, %d times, %d of them ended unseen, %d events, %d kills", b.n, len(b.times()), b.unseen, len(b.told), kills)
}

// live runs one life of the router, from a start to a kill at a random moment. One life in three
// changes the scope of the routes.
func (b *ruleBook) live(t *testing.T, file string, n int) {
	t.Helper()
	wait := func(most time.Duration) { <-time.After(time.Duration(rand.Int64N(int64(most)))) } //nolint:gosec // no secret
	var r *routertest.Router
	kind := rand.IntN(4) //nolint:gosec // no secret
	switch {
	case n%3 == 1:
		r = routertest.StartFile(t, file)
		r = b.turnScope(t, r, file)
	case kind == 0: // during its start, or while it reevaluates pending objects
		r = routertest.Launch(t, file)
		wait(1500 * time.Millisecond)
	case kind == 1: // after some reports
		r = routertest.StartFile(t, file)
		n := 1 + rand.IntN(100) //nolint:gosec // no secret
		r.Wait(t, fmt.Sprintf("%d events", n), func(events []routertest.Event) bool { return len(events) >= n })
	case kind == 2: // after all due reports
		r = routertest.StartFile(t, file)
		b.settle(t, r)
	default: // in the middle of them
		r = routertest.StartFile(t, file)
		r.Ready(t)
		wait(3 * time.Second)
	}
	r.Kill(t)
	b.read(t, r.Events())
}

// settle stops the history until all due reports were delivered.
func (b *ruleBook) settle(t *testing.T, r *routertest.Router) {
	t.Helper()
	b.settleAnd(t, r, func() {})
}

// settleAnd is settle, and calls do before the history goes on.
func (b *ruleBook) settleAnd(t *testing.T, r *routertest.Router, do func()) {
	t.Helper()
	r.Ready(t)
	b.gate.Lock()
	defer b.gate.Unlock()
	b.allTold(t, r)
	do()
}

// allTold waits until all due reports were delivered. There must be no changes meanwhile.
func (b *ruleBook) allTold(t *testing.T, r *routertest.Router) {
	t.Helper()
	missing := ""
	defer func() {
		if missing != "" {
			t.Log(missing)
		}
	}()
	routertest.Poll(t, "all that is due to be told", func() bool {
		missing = b.missing(b.with(t, r.Events()))
		return missing == ""
	})
}

// finish lets the last life deliver all reports, including the suppressed ones, and compares.
func (b *ruleBook) finish(t *testing.T, file string) {
	t.Helper()
	last := routertest.StartFile(t, file)
	b.settle(t, last)
	if b.hidden {
		last = b.turnScope(t, last, file)
	}
	chained := b.chained(b.with(t, last.Events()))
	for _, group := range groups() { // until one passes, which has the number of suppressed ones
		before := b.passed(b.with(t, last.Events()), group)
		few := chained.passed[group]
		pending := func() bool {
			told := b.with(t, last.Events())
			return b.passed(told, group) == before || b.chained(told).passed[group] == few
		}
		for n, made := 0, 0; pending(); n++ {
			if n > 3000 {
				t.Fatalf("nothing of group %s passes", group)
			}
			if made <= n/10 {
				b.turn(t, fmt.Sprintf("o-%s-last-%d", group, made), group, 1)
				made++
			}
			<-time.After(20 * time.Millisecond)
		}
	}
	b.settle(t, last)
	wait(t, "the groups behind the route state", func() string { return b.chained(b.with(t, last.Events())).missing() })
	if code := last.Stop(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	b.read(t, last.Events())
	b.compareState(t, "state")
	b.compareState(t, "calm")
	b.compareChained(t, chained.happened)
	b.compareLasting(t)
	b.compareLimited(t)
}

// compareState expects exactly the history.
func (b *ruleBook) compareState(t *testing.T, route string) {
	t.Helper()
	byUID := b.route(route)
	for _, when := range b.times() {
		told := byUID[when.uid]
		if len(told) == 0 || told[0].op != "entered" || number(told[0].K8sResourceVersion) != when.begin {
			t.Errorf("%s: %s, bad from %d on: told %v", route, when.uid, when.begin, told)
			continue
		}
		told = told[1:]
		if when.ended() {
			if len(told) == 0 || told[0].op != "left" {
				t.Errorf("%s: %s, bad from %d to %d: its end was not told, but %v", route, when.uid, when.begin, when.end, told)
				continue
			}
			told = told[1:]
		}
		byUID[when.uid] = told
	}
	for uid, told := range byUID {
		if len(told) > 0 {
			t.Errorf("%s: %s: told %v, which did not happen", route, uid, told)
		}
	}
}

// compareLasting expects that each report belongs to a time, in order, and none is early.
func (b *ruleBook) compareLasting(t *testing.T) {
	t.Helper()
	for uid, told := range b.route("lasting") {
		b.alternates(t, "lasting", uid, told)
		for i, e := range told {
			if e.op != "entered" {
				continue
			}
			if held := e.Time.Sub(e.data.Since); held < time.Second {
				t.Errorf("lasting: %s: %v was told after %s", uid, e, held)
			}
			if b.timeOf(uid, number(e.K8sResourceVersion)) == nil {
				t.Errorf("lasting: %s: it was not bad at %s", uid, e.K8sResourceVersion)
			}
			if last := b.names[e.name()]; i == len(told)-1 && (last.uid != uid || last.open == nil) {
				t.Errorf("lasting: %s: it is not bad any more, and its end was not told", uid)
			}
		}
	}
}

// alternates checks that entered and left alternate, except for reminders, which come each second.
func (b *ruleBook) alternates(t *testing.T, route, uid string, told []ruleEvent) {
	t.Helper()
	in := false
	for i, e := range told {
		switch {
		case e.op == "left" && in:
			in = false
		case e.op == "entered" && !in && !e.data.Repeat:
			in = true
		case e.op == "entered" && in && e.data.Repeat && e.Time.Sub(told[i-1].Time) >= time.Second:
		default:
			t.Errorf("%s: %s: %v comes out of order in %v", route, uid, e, told)
			return
		}
	}
}

// compareLimited expects that counts are complete, and that reports never exceed the limit.
func (b *ruleBook) compareLimited(t *testing.T) {
	t.Helper()
	told := make(map[string]bool) // by group
	for _, e := range b.told {
		if e.Route != "limited" {
			continue
		}
		if group := b.groupOf(e.K8sUID); e.op == "left" && !told[group] {
			t.Errorf("limited: %v, and that group %s is bad was not told", e, group)
		} else {
			told[group] = e.op == "entered"
		}
	}
	for _, group := range groups() {
		happened, counted := 0, 0
		for _, when := range b.times() {
			if when.group == group {
				happened++
			}
		}
		var passed []time.Time
		for _, e := range b.told {
			if e.Route == "limited" && e.op == "entered" && e.group() == group {
				counted += 1 + e.data.Suppressed
				passed = append(passed, e.Time)
			}
		}
		if counted < happened { // a condition that lasts is counted more than once
			t.Errorf("limited: group %s was bad %d times, and %d were told or counted, %d of them told", group, happened, counted, len(passed))
		}
		for i := range passed {
			// one more, for the time between the change and the decision
			for j := i + 5; j < len(passed); j++ {
				if most := 5 + 1 + int(passed[j].Sub(passed[i])/time.Second); j-i+1 > most {
					t.Fatalf("limited: group %s: %d passed within %s", group, j-i+1, passed[j].Sub(passed[i]))
				}
			}
		}
	}
}

// ruleEvent is an event of a route with a condition.
type ruleEvent struct {
	routertest.Event

	op   string
	data ruleData
}

type ruleData struct {
	Since      time.Time
	Repeat     bool
	Suppressed int
	IDs        []string // of the route joined
	Object     struct {
		Metadata struct {
			Name   string
			Labels map[string]string
		}
	}
}

func (e ruleEvent) name() string  { return e.data.Object.Metadata.Name }
func (e ruleEvent) group() string { return e.data.Object.Metadata.Labels["group"] }

// String shows the parts that explain a failure.
func (e ruleEvent) String() string {
	return fmt.Sprintf("%s@%s %t", e.op, e.K8sResourceVersion, e.data.Repeat)
}

func readRuleEvent(e routertest.Event) (ruleEvent, error) {
	r := ruleEvent{Event: e, op: e.Type[len("io.deltarouter."):]}
	if err := json.Unmarshal(e.Data, &r.data); err != nil {
		return r, fmt.Errorf("%s: %w", e, err)
	}
	return r, nil
}
