package worker

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltarouter/deltarouter/internal/fleet/consume"
	"github.com/deltarouter/deltarouter/internal/fleet/owner"
	"github.com/deltarouter/deltarouter/internal/fleet/work"
	"github.com/deltarouter/deltarouter/internal/oci/lockfile"
	"github.com/deltarouter/deltarouter/internal/pipeline/chain"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/test/must"
)

// inOrder fails if the first deliveries of an object are not in the order of its versions.
func inOrder(t *testing.T, events []event.Event) (distinct int) {
	t.Helper()
	high, seen := map[string]int{}, map[string]bool{}
	for _, e := range events {
		var version int
		if _, err := fmt.Sscan(e.K8sResourceVersion, &version); err != nil {
			t.Fatal(err)
		}
		if !seen[e.ID] && version != high[e.Subject]+1 {
			t.Errorf("%s@%d came after @%d", e.Subject, version, high[e.Subject])
		}
		seen[e.ID], high[e.Subject] = true, max(high[e.Subject], version)
	}
	return len(seen)
}

// The deltas of a route reach the sink by way of several workers, in the order of each object, also
// while workers come and go. A clean hand-over repeats none.
func TestWorkers(t *testing.T) {
	// Guarantee: workers-deliver
	t.Parallel()
	f := newFleet(t, 4, "")
	first := f.start()
	s := f.sink("first")
	var names []string
	for i := range 20 {
		names = append(names, fmt.Sprintf("pod-%d", i))
	}
	const versions = 30
	for v := range versions {
		f.publish(s, v+1, names...)
		switch v {
		case 8:
			f.start()
		case 16:
			first()
		case 24:
			f.start()
		}
	}
	f.receiver.until(t, "all events", func(events []event.Event) bool { return len(events) >= versions*len(names) })
	f.receiver.mu.Lock()
	defer f.receiver.mu.Unlock()
	if n := inOrder(t, f.receiver.events); n != versions*len(names) || len(f.receiver.events) != n {
		t.Errorf("%d events, %d different, want %d", len(f.receiver.events), n, versions*len(names))
	}
}

// A delta that a sink rejects is written to the stream of dead letters, and its message is done; so
// is one that is to be redelivered to a sink that the route does not have any more.
func TestDeadLetters(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2, "")
	f.receiver.refuse = func(e event.Event) error {
		if e.Subject == "default/bad" {
			return plugins.Reject(errors.New("no such thing"))
		}
		return nil
	}
	f.start()
	s := f.sink("first")
	f.publish(s, 1, "bad", "good")
	f.publish(s, 2, "bad", "good")
	f.receiver.until(t, "the good ones", func(events []event.Event) bool { return len(events) == 2 })
	f.done()
	stream, err := f.conn.JS.Stream(t.Context(), f.conn.Names.DeadLetters())
	must.Succeed(t, err)
	if n := stream.CachedInfo().State.Msgs; n != 2 {
		t.Errorf("%d dead letters, want 2", n)
	}
}

// done waits until all messages are acknowledged.
func (f *fleetOf) done() {
	f.t.Helper()
	tick, end := time.NewTicker(20*time.Millisecond), time.After(patience)
	defer tick.Stop()
	for {
		empty, err := consume.Empty(f.t.Context(), f.conn.NATS, f.conn.Names.Work(), f.conn.Names.WorkRoute("first"))
		must.Succeed(f.t, err)
		if empty {
			return
		}
		select {
		case <-tick.C:
		case <-end:
			f.t.Fatal("not all messages are done")
		}
	}
}

// A message with parts is one delta. All parts are acknowledged.
func TestParts(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1, "")
	s := f.sink("first")
	random := make([]byte, 3<<20)
	_, _ = rand.Read(random)
	var events []event.Event
	for i := range 3 {
		o, err := event.ParseObject(pods, fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"default","name":"big","uid":"u","resourceVersion":"%d"},"data":%q}`,
			i+1, base64.StdEncoding.EncodeToString(random)))
		must.Succeed(t, err)
		events = append(events, chain.Event(&event.Delta{Source: "pods", Op: event.Added, New: o, Seen: time.Now()}, "first"))
	}
	for _, err := range s.Write(t.Context(), events) {
		must.Succeed(t, err)
	}
	f.start()
	f.receiver.until(t, "all", func(events []event.Event) bool { return len(events) == 3 })
	f.done()
	if n := inOrder(t, f.receiver.events); n != 3 {
		t.Errorf("%d events", n)
	}
}

// The number of partitions changes while messages come: the order of each object is kept, and
// nothing is lost or repeated. The leader and the workers read the new configuration by themselves.
func TestReshard(t *testing.T) {
	// Guarantee: workers-reshard
	t.Parallel()
	f := newFleet(t, 2, "")
	f.receiver.gate = make(chan struct{})
	f.start()
	f.start()
	s := f.sink("first")
	var names []string
	for i := range 20 {
		names = append(names, fmt.Sprintf("pod-%d", i))
	}
	version := 0
	publish := func() {
		version++
		f.publish(s, version, names...)
	}
	for i := range 4 {
		for range 5 {
			publish()
		}
		f.change(fmt.Sprintf("partitions: %d", 2+i), fmt.Sprintf("partitions: %d", 3+i))
		s = f.sink("first")
	}
	publish()
	close(f.receiver.gate) // all generations have messages, and none of them is done
	f.receiver.until(t, "all events", func(events []event.Event) bool { return len(events) >= version*len(names) })
	f.done()
	f.receiver.mu.Lock()
	defer f.receiver.mu.Unlock()
	if n := inOrder(t, f.receiver.events); n != version*len(names) || len(f.receiver.events) != n {
		t.Errorf("%d events, %d different, want %d", len(f.receiver.events), n, version*len(names))
	}
}

// change changes the configuration of the leader and the workers.
func (f *fleetOf) change(from, to string) {
	f.t.Helper()
	text, err := os.ReadFile(f.file)
	must.Succeed(f.t, err)
	f.write(strings.Replace(string(text), from, to, 1))
	f.plan, err = plan(f.t.Context(), f.options(), nil)
	must.Succeed(f.t, err)
}

// When the leader changes the route, the workers handle its deltas only with the same
// configuration: those with the new one, after they have read it, which includes deltas of before.
func TestChange(t *testing.T) {
	// Guarantee: workers-config
	t.Parallel()
	f := newFleet(t, 2, "")
	s := f.sink("first")
	f.publish(s, 1, "a", "b", "c", "d")
	f.change("attempts: 1", "attempts: 2")
	s = f.sink("first")
	f.publish(s, 2, "a", "b", "c", "d")
	f.start() // it has the new configuration, and gets messages of both
	f.receiver.until(t, "both", func(events []event.Event) bool { return len(events) == 8 })
	text, err := os.ReadFile(f.file)
	must.Succeed(t, err)
	f.change("attempts: 2", "attempts: 3")
	s = f.sink("first")
	f.write(string(text)) // the worker keeps the configuration of before
	f.publish(s, 3, "a", "b", "c", "d")
	f.write(strings.Replace(string(text), "attempts: 2", "attempts: 3", 1))
	f.receiver.until(t, "all", func(events []event.Event) bool { return len(events) == 12 })
	f.done()
	if n := inOrder(t, f.receiver.events); n != 12 || len(f.receiver.events) != 12 {
		t.Errorf("%d events, %d different, want 12", len(f.receiver.events), n)
	}
}

// A new configuration that cannot be opened does not end the worker: it goes on with the previous
// one, and takes the next one.
func TestRefused(t *testing.T) {
	t.Parallel()
	var opened atomic.Int32
	f := newFleet(t, 2, "")
	f.opening = func() error {
		if opened.Add(1) == 2 {
			return errors.New("no such file")
		}
		return nil
	}
	f.start()
	s := f.sink("first")
	f.publish(s, 1, "a", "b")
	f.receiver.until(t, "the first ones", func(events []event.Event) bool { return len(events) == 2 })
	before, err := os.ReadFile(f.file)
	must.Succeed(t, err)
	f.write(string(before) + "# another one\n")
	poll(t, "the previous configuration is opened again", func() bool { return opened.Load() == 3 })
	f.publish(s, 2, "a", "b")
	f.receiver.until(t, "those after it", func(events []event.Event) bool { return len(events) == 4 })
	f.write(string(before) + "# a good one\n")
	poll(t, "the next configuration is opened", func() bool { return opened.Load() == 4 })
	f.publish(s, 3, "a", "b")
	f.receiver.until(t, "the last ones", func(events []event.Event) bool { return len(events) == 6 })
}

// A configuration that cannot be opened, for example since a registry is away, is tried again.
// Changed digests of modules beside the configuration count as a change of it.
func TestTriedAgain(t *testing.T) {
	t.Parallel()
	var opened atomic.Int32
	f := newFleet(t, 2, "")
	f.retryOpen = time.Millisecond
	f.opening = func() error {
		if n := opened.Add(1); n == 2 || n == 4 {
			return errors.New("the registry does not answer")
		}
		return nil
	}
	f.start()
	f.sink("first")
	poll(t, "the worker has started", func() bool { return opened.Load() == 1 && len(f.workers()) == 1 })
	must.Succeed(t, os.WriteFile(lockfile.Beside(f.file), []byte("modules: []\n"), 0o600))
	poll(t, "the third attempt succeeds", func() bool { return opened.Load() == 6 })
	f.looked()
	f.looked()
	f.looked()
	if n := opened.Load(); n != 6 {
		t.Errorf("opened %d times", n)
	}
}

// poll waits for a condition that nothing signals.
func poll(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick, end := time.NewTicker(20*time.Millisecond), time.After(patience)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("not reached: %s", what)
		}
	}
}

// A route loses its workers while they have deltas of it: they finish them with the configuration
// of before, until the leader has the new one, and then go on with the other route.
func TestLosesWorkers(t *testing.T) {
	// Guarantee: workers-config
	t.Parallel()
	f := newFleet(t, 2, secondRoute)
	f.start()
	first, second := f.sink("first"), f.sink("second")
	f.outbox.Use([]*work.Sink{first, second})
	f.publish(first, 1, "a", "b")
	f.receiver.until(t, "the first ones", func(events []event.Event) bool { return len(events) == 2 })
	f.change(workersOfFirst, "")
	for v := range 5 {
		f.publish(first, v+2, "a", "b")
		end := v*2 + 4
		f.receiver.until(t, "those that the leader still publishes", func(events []event.Event) bool { return len(events) == end })
		f.looked() // the worker has seen the new file, unless it is slow
	}
	f.outbox.Use([]*work.Sink{second})
	poll(t, "the worker has the new configuration", func() bool { return slices.Contains(f.workers(), f.plan.Config.Hash) })
	f.publish(second, 7, "a", "b")
	f.receiver.until(t, "those of the other route", func(events []event.Event) bool { return len(events) == 14 })
}

const (
	secondRoute    = "  - {name: second, from: [pods], to: [receiver], workers: {partitions: 1}}\n"
	workersOfFirst = "    workers: {partitions: 2, pending: 32}\n"
)

// The file changes twice before the leader has announced a route of the first change. The worker
// has left the route, and goes back to it, since the leader does not use the second change before
// its deltas are handled.
func TestFasterThanLeader(t *testing.T) {
	// Guarantee: workers-config
	t.Parallel()
	f := newFleet(t, 2, secondRoute)
	f.start()
	first, second := f.sink("first"), f.sink("second")
	f.outbox.Use([]*work.Sink{second})
	poll(t, "the worker has the first change", func() bool { return len(f.workers()) == 1 })
	f.change(workersOfFirst, "")
	latest := f.plan.Config.Hash
	poll(t, "the worker has the second change", func() bool { return slices.Contains(f.workers(), latest) })
	f.outbox.Use([]*work.Sink{first, second})
	f.publish(first, 1, "a", "b")
	f.receiver.until(t, "the deltas of the first change", func(events []event.Event) bool { return len(events) == 2 })
	f.done()
	f.outbox.Use([]*work.Sink{second})
	poll(t, "the worker has the second change again", func() bool { return slices.Contains(f.workers(), latest) })
}

// workers returns the hashes of the configurations of the workers.
func (f *fleetOf) workers() (hashes []string) {
	f.t.Helper()
	members, err := f.conn.JS.KeyValue(f.t.Context(), f.conn.Names.Members())
	must.Succeed(f.t, err)
	keys, err := members.Keys(f.t.Context())
	if errors.Is(err, jetstream.ErrNoKeysFound) {
		return nil
	}
	must.Succeed(f.t, err)
	for _, key := range keys {
		e, err := members.Get(f.t.Context(), key)
		if err != nil {
			continue // it has just left
		}
		var m owner.Member
		must.Succeed(f.t, json.Unmarshal(e.Value(), &m))
		if m.Role == owner.RoleWorker {
			hashes = append(hashes, m.Config)
		}
	}
	return hashes
}

// looked waits for about the time in which a worker looks at its configuration.
func (f *fleetOf) looked() {
	select {
	case <-time.After(checkInterval / 2):
	case <-f.t.Context().Done():
	}
}
