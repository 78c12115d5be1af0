package owner

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/natstest/embedded"
)

// fleet is some Owners on one server.
type fleet struct {
	t            *testing.T
	own, members jetstream.KeyValue
	empty        Empty

	mu     sync.Mutex
	owners map[Partition]string
	moved  chan struct{} // closed with each change of owners
}

func newFleet(t *testing.T) *fleet {
	js := embedded.JetStream(t, embedded.Start(t, nil))
	return &fleet{
		t: t, own: bucket(t, js, "own"), members: bucket(t, js, "members"), owners: map[Partition]string{}, moved: make(chan struct{}),
		empty: func(context.Context, string, uint64) (bool, error) { return true, nil },
	}
}

func (f *fleet) set(p Partition, from, to string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.owners[p] != from {
		f.t.Errorf("%s becomes the owner of %v, which %q has", to, p, f.owners[p])
	}
	if to == "" {
		delete(f.owners, p)
	} else {
		f.owners[p] = to
	}
	close(f.moved)
	f.moved = make(chan struct{})
}

// until waits until the owners satisfy a condition.
func (f *fleet) until(what string, ok func(owners map[Partition]string) bool) {
	f.t.Helper()
	end := time.After(patience)
	for {
		f.mu.Lock()
		now, moved := maps.Clone(f.owners), f.moved
		f.mu.Unlock()
		if ok(now) {
			return
		}
		select {
		case <-moved:
		case <-end:
			f.t.Fatalf("%s: not reached: %v", what, now)
		}
	}
}

type testWorker struct {
	*Owner

	end  func() // hands over
	kill func()
}

// start starts a worker. A worker that was killed leaves its entries to the TTL.
func (f *fleet) start(name, hash string) *testWorker {
	var dead atomic.Bool
	give, ended := make(chan struct{}), make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	o := New(Config{
		Own: f.own, Members: f.members, Worker: name, Routes: map[string]string{"r": hash}, TTL: 2 * time.Second, Empty: f.empty,
		Log: slog.New(slog.DiscardHandler),
		Hold: func(ctx context.Context, l *Lease) bool {
			f.set(l.Partition, "", name)
			select {
			case <-ctx.Done():
			case <-l.Released():
			}
			f.set(l.Partition, name, "")
			return false
		},
	})
	go func() { defer close(ended); o.Run(ctx, give) }()
	w := &testWorker{Owner: o}
	w.kill = sync.OnceFunc(func() { dead.Store(true); cancel(); <-ended })
	w.end = sync.OnceFunc(func() { close(give); <-ended; cancel() })
	f.t.Cleanup(func() {
		if !dead.Load() {
			w.end()
		}
	})
	return w
}

func (f *fleet) announce(hash string, partitions int) uint64 {
	f.t.Helper()
	g, err := Announce(f.t.Context(), KV(f.own), "r", "route", hash, partitions, f.empty)
	must.Succeed(f.t, err)
	return g
}

// all reports whether each of n partitions of a generation has an owner, and each worker has one.
func all(generation uint64, n int, workers ...string) func(map[Partition]string) bool {
	return func(owners map[Partition]string) bool {
		if len(owners) != n {
			return false
		}
		for p := range n {
			if !slices.Contains(workers, owners[Partition{"r", generation, p}]) {
				return false
			}
		}
		return len(slices.Compact(slices.Sorted(maps.Values(owners)))) == len(workers)
	}
}

// The partitions spread over the workers that come, and move to the remaining ones when one leaves
// or dies.
func TestMembership(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.announce("h", 16)
	a := f.start("a", "h")
	f.until("one worker", all(1, 16, "a"))
	b := f.start("b", "h")
	f.until("two workers", all(1, 16, "a", "b"))
	f.start("c", "h")
	f.until("three workers", all(1, 16, "a", "b", "c"))
	b.end()
	f.until("one has left", all(1, 16, "a", "c"))
	a.kill()
	f.until("one has died", all(1, 16, "c"))
}

// A worker with another configuration than the leader's takes nothing and says so. When the leader
// announces its configuration, it takes over.
func TestForeign(t *testing.T) {
	// Guarantee: workers-config
	t.Parallel()
	f := newFleet(t)
	f.announce("old", 4)
	f.start("a", "old")
	b := f.start("b", "new")
	f.until("the old one", all(1, 4, "a"))
	poll(t, "the worker says that its configuration is another one", func() bool { return b.Foreign()["r"] == "old" })
	if g := f.announce("new", 4); g != 1 {
		t.Errorf("generation %d, want 1: the number of partitions is the same", g)
	}
	f.until("the new one", all(1, 4, "b"))
	if n := len(b.Foreign()); n > 0 {
		t.Errorf("%d foreign routes", n)
	}
}

// poll waits for a condition that nothing signals.
func poll(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick, end := time.NewTicker(10*time.Millisecond), time.After(patience)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("not reached: %s", what)
		}
	}
}

// outdated returns a key of a partition of an earlier generation; empty: there is none.
func (f *fleet) outdated(generation uint64) string {
	f.t.Helper()
	keys, err := f.own.Keys(f.t.Context())
	must.Succeed(f.t, err)
	for _, k := range keys {
		if p, ok := parsePartition(k); ok && p.Generation < generation {
			return k
		}
	}
	return ""
}

// Keys of earlier generations that no worker holds are removed: a free one, and one of a worker
// that has ended. One that is renewed stays until it is not.
func TestForgottenKeys(t *testing.T) {
	// Guarantee: workers-reshard
	t.Parallel()
	f := newFleet(t)
	put := func(key, worker string) {
		t.Helper()
		v := value{Worker: worker}
		_, err := f.own.Put(t.Context(), key, v.encode())
		must.Succeed(t, err)
	}
	put("r.1.0", "")
	put("r.1.1", "dead")
	put("other.1.0", "dead")
	record, err := json.Marshal(Record{ID: "r", Hash: "h", Generations: []Generation{{2, 4}}})
	must.Succeed(t, err)
	_, err = f.own.Put(t.Context(), "r", record)
	must.Succeed(t, err)
	renewing, stop := context.WithCancel(t.Context())
	var renewals sync.WaitGroup
	renewals.Go(func() {
		for tick := time.NewTicker(100 * time.Millisecond); renewing.Err() == nil; <-tick.C {
			put("r.1.2", "alive")
		}
	})
	f.start("a", "h")
	f.until("generation 2", all(2, 4, "a"))
	left := func() (all []string) {
		keys, err := f.own.Keys(t.Context())
		must.Succeed(t, err)
		for _, key := range keys {
			if p, ok := parsePartition(key); ok && p.Generation < 2 {
				all = append(all, key)
			}
		}
		slices.Sort(all)
		return all
	}
	poll(t, "the free key and that of a dead worker are gone", func() bool { return slices.Equal(left(), []string{"other.1.0", "r.1.2"}) })
	stop()
	renewals.Wait()
	poll(t, "the last key is gone", func() bool { return slices.Equal(left(), []string{"other.1.0"}) })
}

// A new number of partitions opens a new generation when the one before is empty; its keys are
// removed then.
func TestReshard(t *testing.T) {
	// Guarantee: workers-reshard
	t.Parallel()
	f := newFleet(t)
	var empty atomic.Bool
	asked := make(chan uint64, 1000)
	f.empty = func(_ context.Context, _ string, generation uint64) (bool, error) {
		select {
		case asked <- generation:
		default:
		}
		return empty.Load(), nil
	}
	f.announce("h", 4)
	f.start("a", "h")
	f.start("b", "h")
	f.until("generation 1", all(1, 4, "a", "b"))
	if g := f.announce("h", 16); g != 2 {
		t.Fatalf("generation %d, want 2", g)
	}
	for range 6 {
		if g := <-asked; g != 1 {
			t.Errorf("asked for generation %d", g)
		}
	}
	f.until("still generation 1", all(1, 4, "a", "b"))
	if g := f.announce("h", 32); g != 3 {
		t.Fatalf("generation %d, want 3", g)
	}
	empty.Store(true)
	f.until("generation 3", all(3, 32, "a", "b"))
	poll(t, "the keys of earlier generations are gone", func() bool { return f.outdated(3) == "" })
	f.announce("h", 32)
	data, _, err := KV(f.own).Get(t.Context(), "r")
	must.Succeed(t, err)
	var r Record
	must.Succeed(t, json.Unmarshal(data, &r))
	if want := []Generation{{3, 32}}; !slices.Equal(r.Generations, want) {
		t.Errorf("generations %v, want %v", r.Generations, want)
	}
}

// Rendezvous hashing spreads evenly, and a change of the members moves only the partitions that
// must move.
func TestRanked(t *testing.T) {
	t.Parallel()
	var before []string
	for i := range 10 {
		before = append(before, fmt.Sprintf("worker-7d9f8b-%d", i))
	}
	count, moved := map[string]int{}, 0
	const n = 1000
	for i := range n {
		p := Partition{"abc", 1, i}.String()
		first := ranked(before, p)[0]
		count[first]++
		if now := ranked(before[:9], p)[0]; now != first {
			if moved++; first != before[9] {
				t.Errorf("%s moves from %s to %s", p, first, now)
			}
		}
	}
	for m, c := range count {
		if c < n/20 || c > n/5 {
			t.Errorf("%s has %d of %d partitions", m, c, n)
		}
	}
	if moved != count[before[9]] {
		t.Errorf("%d moved, want %d", moved, count[before[9]])
	}
}
