package chaos

import (
	"cmp"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/test/effort"
	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// TestSpilledSurvivesAKill blocks a sink, so that most of its route's backlog is on disk only. It
// kills the router, and kills it again during the delivery. Then everything must have arrived in
// order.
func TestSpilledSurvivesAKill(t *testing.T) {
	// Guarantee: backlog-on-disk, backlog-kept
	t.Parallel()
	s, ns := sandboxtest.StartNamespace(t)
	h := newReceiver(t, answer(http.StatusServiceUnavailable))
	file := routertest.Install(t, s.Kubeconfig(), fmt.Sprintf(`
sources:
  maps: {resource: v1/configmaps, namespaces: %s}
sinks:
  out: {stdout: {}}
  hook: {webhook: {url: %q}}
routes:
  - {name: blocked, from: maps, to: hook, queue: {memory: 8, disk: 64Mi}, batch: {size: 4}, retry: {backoff: 10ms, max: 100ms}}
  - {name: all, from: maps, to: out}
`, ns, h.URL))
	r := routertest.StartFile(t, file)
	r.Ready(t)
	const objects, updates = 20, 10
	createMany(t, s, ns, "m", objects)
	each(t, objects, func(i int) error { return change(t, s, ns, fmt.Sprintf("m-%d", i), updates) })
	const all = objects * (updates + 1)
	r.Wait(t, "the other route to have it all", func(events []routertest.Event) bool { return len(events) >= all })
	onDisk := func() float64 { return r.Metric(t, `deltarouter_route_queue_disk_deltas{route="blocked"}`) }
	routertest.Poll(t, "the tail to be on disk alone", func() bool { return onDisk() >= all-8 })
	if depth := r.Metric(t, `deltarouter_route_queue_deltas{route="blocked"}`); depth != all {
		t.Errorf("%v owed, want %d", depth, all)
	}
	r.Kill(t)

	r = routertest.StartFile(t, file)
	if n := onDisk(); n > all-8 {
		t.Errorf("%v of %d are on disk alone after the restart", n, all)
	}
	h.now(answer(http.StatusOK))
	routertest.Poll(t, "half of it", func() bool { return h.count() >= all/2 })
	r.Kill(t)
	r = routertest.StartFile(t, file)
	routertest.Poll(t, "the end of the debt", func() bool {
		return r.Metric(t, `deltarouter_route_queue_deltas{route="blocked"}`) == 0 && h.count() >= all
	})
	checkFlow(t, h.delivered(), objects, updates+1, true)
}

// change updates a ConfigMap n times.
func change(t *testing.T, s *sandboxtest.Sandbox, ns, name string, n int) error {
	t.Helper()
	maps := routertest.Use(t, s, routertest.ConfigMaps, ns)
	for i := range n {
		maps.Change(name, fmt.Sprintf(`{"data":{"value":"%d"}}`, i+2))
	}
	return nil
}

// checkFlow checks that the given number of versions of each object arrived in order. With again, a
// later part of them may have arrived twice.
func checkFlow(t *testing.T, events []routertest.Event, objects, versions int, again bool) {
	t.Helper()
	seen := make(map[string][]int)
	for _, e := range events {
		got, version := seen[e.Subject], number(e.K8sResourceVersion)
		if n := len(got); n > 0 && version <= got[n-1] {
			if !again || !slices.Contains(got, version) {
				t.Fatalf("%s: version %d came behind %d", e.Subject, version, got[n-1])
			}
			continue
		}
		seen[e.Subject] = append(got, version)
	}
	if len(seen) != objects {
		t.Errorf("%d objects arrived, want %d", len(seen), objects)
	}
	for subject, got := range seen {
		if len(got) != versions {
			t.Errorf("%s: %d versions arrived, want %d", subject, len(got), versions)
		}
	}
}

// flow has the measurements of TestBlockedSink over a time.
type flow struct {
	median time.Duration // from the router seeing a change to the other route's sink getting it
	anon   int           // highest private memory of the process in KiB
	// highest memory in KiB including mapped files; the system reclaims the part of the state file
	// when needed
	rss    int
	events int
}

// TestBlockedSink blocks a sink at 2,000 deltas a second. The backlog of its route must go to disk,
// the memory stay bounded, the other route continue, and after the end of the blockade everything
// must arrive in order. On a slow machine the disk may lag behind; then the source waits. The
// effort soak (five minutes) also compares the delivery times of the other route, and the memory of
// the process, with those before.
func TestBlockedSink(t *testing.T) {
	// Guarantee: route-isolation, backlog-on-disk, memory-bounded
	t.Parallel()
	const objects, rate, memory = 1000, 2000, 1000
	blocked := time.Duration(effort.Rounds(5, 15, 300)) * time.Second
	server := newFlood(t, objects, rate)
	h := newReceiver(t, answer(http.StatusOK))
	r := routertest.StartFile(t, routertest.Install(t, server.kubeconfig(t), fmt.Sprintf(`
sources:
  maps: {resource: v1/configmaps}
sinks:
  out: {stdout: {}}
  hook: {webhook: {url: %q}}
routes:
  - {name: fine, from: maps, to: out, ops: updated, emit: '{"n": 1}'}
  - {name: blocked, from: maps, to: hook, ops: updated, emit: '{"n": 1}', queue: {memory: %d, disk: 1Gi}, overflow: block, concurrency: 16, retry: {backoff: 10ms, max: 100ms}}
`, h.URL, memory)))
	r.Ready(t)
	server.open()
	pass(t, r, blocked/5) // until the heap has its size
	before := pass(t, r, blocked/5)
	h.now(answer(http.StatusServiceUnavailable))
	during := pass(t, r, blocked)
	r.Saved(t) // an object outside of a cut is in memory only
	depth, onDisk := r.Metric(t, `deltarouter_route_queue_deltas{route="blocked"}`), r.Metric(t, `deltarouter_route_queue_disk_deltas{route="blocked"}`)
	bytes := r.Metric(t, `deltarouter_route_queue_disk_bytes{route="blocked"}`)
	t.Logf("before %+v, blocked for %v %+v; %v owed, %v on disk alone, %v bytes", before, blocked, during, depth, onDisk, bytes)
	if inMemory := depth - onDisk; inMemory > memory+server.inFlight() {
		t.Errorf("%v of %v deltas are in memory", inMemory, depth)
	}
	if onDisk < depth/2 {
		t.Errorf("%v of %v deltas are on disk alone", onDisk, depth)
	}
	if effort.Current() == effort.Soak {
		if shift := float64(during.median)/float64(before.median) - 1; shift > 0.1 {
			t.Errorf("the other route's median delivery time went up by %.0f %%", 100*shift)
		}
		if grown := during.anon - before.anon; grown > 64<<10 {
			t.Errorf("the process grew by %d MiB", grown>>10)
		}
	}
	sent := server.stop()
	h.now(answer(http.StatusOK))
	began := time.Now()
	routertest.PollEvery(t, 100*time.Millisecond, "the debt to shrink", func() bool {
		return r.Metric(t, `deltarouter_route_queue_deltas{route="blocked"}`) < depth
	})
	for h.count() < sent && time.Since(began) < 10*time.Minute {
		select {
		case <-time.After(100 * time.Millisecond):
		case <-t.Context().Done():
		}
	}
	t.Logf("%d deltas arrived, the last of them %v after the sink was back", h.count(), time.Since(began))
	for _, result := range []string{"coalesced", "dropped", "dead_lettered"} {
		if n := r.Metric(t, fmt.Sprintf(`deltarouter_route_deltas_total{result=%q,route="blocked"}`, result)); n > 0 {
			t.Errorf("%v deltas were %s", n, result)
		}
	}
	if n := h.count(); n != sent {
		t.Errorf("%d deltas arrived, %d were sent", n, sent)
	}
	checkOrdered(t, h.delivered())
	r.Wait(t, "the other route to have it all", func(events []routertest.Event) bool { return len(events) == sent })
}

// checkOrdered checks that no object went backwards.
func checkOrdered(t *testing.T, events []routertest.Event) {
	t.Helper()
	last := make(map[string]int)
	for _, e := range events {
		if v := number(e.K8sResourceVersion); v <= last[e.Subject] {
			t.Fatalf("%s: version %d came behind %d", e.Subject, v, last[e.Subject])
		} else {
			last[e.Subject] = v
		}
	}
}

// pass measures for a time.
func pass(t *testing.T, r *routertest.Router, d time.Duration) (f flow) {
	t.Helper()
	from := len(r.Events())
	end := time.After(d)
	for ended := false; !ended; {
		select {
		case <-end:
			ended = true
		case <-time.After(100 * time.Millisecond):
		}
		f.rss = max(f.rss, memoryOf(t, r.Process().Pid, "VmRSS:"))
		f.anon = max(f.anon, memoryOf(t, r.Process().Pid, "RssAnon:"))
	}
	var took []time.Duration
	for _, e := range r.Events()[from:] {
		took = append(took, e.At.Sub(e.Time))
	}
	if len(took) == 0 {
		t.Fatal("the other route stands still")
	}
	slices.SortFunc(took, cmp.Compare)
	f.median, f.events = took[len(took)/2], len(took)
	return f
}

// memoryOf returns a line of the system's report about the memory of a process, in KiB.
func memoryOf(t *testing.T, pid int, name string) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Skip(err)
	}
	for line := range strings.SplitSeq(string(text), "\n") {
		if rest, ok := strings.CutPrefix(line, name); ok {
			n, err := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(rest, "kB")))
			must.Succeed(t, err)
			return n
		}
	}
	t.Skip("the system does not say how much memory a process has")
	return 0
}
