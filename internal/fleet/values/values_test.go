package values_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltarouter/deltarouter/internal/fleet"
	"github.com/deltarouter/deltarouter/internal/fleet/values"
	"github.com/deltarouter/deltarouter/internal/kv"
	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/test/effort"
	"github.com/deltarouter/deltarouter/test/kvtest"
	"github.com/deltarouter/deltarouter/test/leaks"
	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/natstest"
)

func TestMain(m *testing.M) {
	effort.Waiting(8)
	leaks.Main(m)
}

// patience limits the wait of a test. A successful test does not wait so long.
const patience = 2 * time.Minute

// limit is a size that no test reaches.
const limit = 1 << 30

// connect connects a leader, which makes the bucket.
func connect(t *testing.T, urls []string, replicas int) *fleet.Conn {
	t.Helper()
	conn := join(t, urls, replicas)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		// Servers that connect to each other can lose an answer. Without a deadline a request takes
		// 5 s at most; the leader of a fleet tries again then, too.
		err := conn.Ensure(context.WithoutCancel(ctx))
		if err == nil {
			return conn
		}
		if ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
	}
}

// join connects a process that uses the bucket of the leader.
func join(t *testing.T, urls []string, replicas int) *fleet.Conn {
	t.Helper()
	cfg := &config.Fleet{Name: "f", NATS: config.NATS{Servers: urls}, Replicas: replicas}
	conn, err := fleet.Connect(t.Context(), cfg, t.Name(), slog.New(slog.DiscardHandler))
	must.Succeed(t, err)
	t.Cleanup(func() { must.Report(t, conn.Close()) })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	must.Succeed(t, conn.Ready(ctx))
	return conn
}

// worker returns the values of a worker with a connection of its own.
func worker(t *testing.T, urls []string, replicas int) *values.Values {
	t.Helper()
	v := values.New(t.Context(), connect(t, urls, replicas), timer.Real(), slog.New(slog.DiscardHandler))
	t.Cleanup(v.Close)
	return v
}

func open(t must.T, v *values.Values, handler string) plugins.SharedKV {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	store, err := v.Open(ctx, handler)
	must.Succeed(t, err)
	return store.(plugins.SharedKV)
}

func syncAll(t *testing.T, v *values.Values) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	must.Succeed(t, v.Sync(ctx))
}

func set(key, value string) plugins.KVWrite {
	return plugins.KVWrite{Key: key, Value: []byte(value)}
}

func TestContract(t *testing.T) {
	// Guarantee: workers-kv
	t.Parallel()
	c := natstest.Start(t, natstest.Config{})
	conn := connect(t, c.URLs(), 1)
	var last atomic.Int64
	kvtest.Contract(t, func(tt must.T, clock timer.Clock) plugins.KV {
		v := values.New(t.Context(), conn, clock, slog.New(slog.DiscardHandler))
		t.Cleanup(v.Close)
		return open(tt, v, fmt.Sprint("h", last.Add(1)))
	})
}

// TestTwoWorkers shows that a worker sees the commits of another one after Sync, and that a commit
// with a value that was changed meanwhile is refused completely.
func TestTwoWorkers(t *testing.T) {
	// Guarantee: workers-kv
	t.Parallel()
	c := natstest.Start(t, natstest.Config{})
	v, w := worker(t, c.URLs(), 1), worker(t, c.URLs(), 1)
	a, b := open(t, v, "h"), open(t, w, "h")
	other := open(t, w, "other")
	must.Succeed(t, a.Commit([]plugins.KVWrite{set("k", "1"), set("gone", "x")}, limit))
	must.Succeed(t, a.Commit([]plugins.KVWrite{set("k", "2"), {Key: "gone", Delete: true}}, limit))
	syncAll(t, w)
	if v, ok := b.Get("k"); !ok || string(v) != "2" {
		t.Errorf("got %q after Sync", v)
	}
	if _, ok := b.Get("gone"); ok {
		t.Error("a removed value is there")
	}
	if _, ok := other.Get("k"); ok {
		t.Error("another handler sees the value")
	}

	late := kv.NewOverlay(b, timer.Real(), limit)
	late.Get("k")
	must.Succeed(t, errors.Join(late.Set("new", []byte("1"), 0), a.Commit([]plugins.KVWrite{set("k", "3")}, limit)))
	if err := late.Commit(); plugins.ClassOf(err) != plugins.Postponed {
		t.Errorf("the commit of a call with an old value: %v", err)
	}
	if _, ok := b.Get("new"); ok {
		t.Error("a part of the refused commit was applied")
	}
	late.Reset()
	if v, _ := late.Get("k"); string(v) != "3" {
		t.Errorf("the repeated call sees %q", v)
	}
	must.Succeed(t, errors.Join(late.Set("k", []byte("4"), 0), late.Commit()))

	must.Fail(t, a.Commit([]plugins.KVWrite{set("k", strings.Repeat("x", 2<<20))}, limit), "max_payload")
	third := open(t, worker(t, c.URLs(), 1), "h")
	if v, _ := third.Get("k"); string(v) != "4" || third.Size() != plugins.KVSize("k", []byte("4")) {
		t.Errorf("a new worker reads %q, %d bytes", v, third.Size())
	}
}

// counting makes several workers add to pairs of counters: both of a pair in one call. Each of
// their lanes makes calls as long as more returns true for the number of its calls.
func counting(t *testing.T, workers []plugins.SharedKV, keys int, more func(calls int) bool) (total *counts, wait func()) {
	t.Helper()
	total = &counts{}
	var all sync.WaitGroup
	for i, store := range workers {
		for lane := range 4 {
			all.Go(func() {
				o := kv.NewOverlay(store, timer.Real(), limit)
				for n := 0; more(n); n++ {
					if err := total.persist(o, strconv.Itoa((i+lane+n)%keys)); err != nil {
						t.Error(err)
						return
					}
					total.calls.Add(1)
				}
			})
		}
	}
	return total, all.Wait
}

// counts are the calls that succeeded, and those whose answer did not come in time: their commits
// may be stored, and they were repeated.
type counts struct{ calls, unanswered atomic.Int64 }

// persist repeats a call as long as its commit is postponed.
func (c *counts) persist(o *kv.Overlay, key string) error {
	deadline := time.Now().Add(patience)
	for {
		err := count(o, key)
		if err == nil || plugins.ClassOf(err) != plugins.Postponed || time.Now().After(deadline) {
			return err
		}
		if strings.Contains(err.Error(), "cannot be written to NATS") {
			c.unanswered.Add(1)
		}
	}
}

// check compares the calls with the sums of both halves of the counters.
func (c *counts) check(t *testing.T, a, b int64) {
	t.Helper()
	calls, unanswered := c.calls.Load(), c.unanswered.Load()
	if a != b || a < calls || a > calls+unanswered {
		t.Errorf("the counters are %d and %d after %d calls, and %d without an answer", a, b, calls, unanswered)
	}
}

func count(o *kv.Overlay, key string) error {
	o.Reset()
	for _, half := range []string{"a", "b"} {
		value, _ := o.Get(half + key)
		n, _ := strconv.Atoi(string(value))
		if err := o.Set(half+key, []byte(strconv.Itoa(n+1)), 0); err != nil {
			return err
		}
	}
	return o.Commit()
}

// sums returns the sums of both halves of all counters.
func sums(store plugins.KV, keys int) (a, b int64) {
	for key := range keys {
		for half, sum := range map[string]*int64{"a": &a, "b": &b} {
			value, _ := store.Get(half + strconv.Itoa(key))
			n, _ := strconv.Atoi(string(value))
			*sum += int64(n)
		}
	}
	return a, b
}

// TestContention shows that no commit is lost or applied twice while several workers change the
// same values. On a machine so slow that an answer does not come in time, its call is repeated.
func TestContention(t *testing.T) {
	// Guarantee: workers-kv
	t.Parallel()
	const keys = 3
	c := natstest.Start(t, natstest.Config{})
	var stores []plugins.SharedKV
	for range 3 {
		stores = append(stores, open(t, worker(t, c.URLs(), 1), "h"))
	}
	total, wait := counting(t, stores, keys, func(calls int) bool { return calls < 25 })
	wait()
	fresh := open(t, worker(t, c.URLs(), 1), "h")
	a, b := sums(fresh, keys)
	total.check(t, a, b)
}

// TestServersDie shows the same while servers of a cluster are killed and paused. A commit whose
// answer was lost may be repeated by its call.
func TestServersDie(t *testing.T) {
	// Guarantee: workers-kv
	t.Parallel()
	const keys = 5
	c := natstest.Start(t, natstest.Config{Servers: 3})
	_, js := c.Connect(t)
	connect(t, c.URLs(), 3)
	joined := func() plugins.SharedKV {
		v := values.New(t.Context(), join(t, c.URLs(), 3), timer.Real(), slog.New(slog.DiscardHandler))
		t.Cleanup(v.Close)
		return open(t, v, "h")
	}
	stores := []plugins.SharedKV{joined(), joined(), joined()}
	var ended atomic.Bool
	total, wait := counting(t, stores, keys, func(int) bool { return !ended.Load() && !t.Failed() })
	for round := range effort.Rounds(2, 4, 100) {
		before := total.calls.Load()
		for late := time.Now().Add(patience); total.calls.Load() < before+30 && time.Now().Before(late); {
			<-time.After(10 * time.Millisecond)
		}
		leader := c.Leader(t, js, "KV_dr_f_kv")
		if round%2 == 1 {
			leader.Pause()
			<-time.After(3 * time.Second)
			leader.Continue()
		} else {
			leader.Kill()
			must.Succeed(t, leader.Restart())
		}
		c.WaitReady(t)
	}
	ended.Store(true)
	wait()
	fresh := joined()
	a, b := sums(fresh, keys)
	total.check(t, a, b)
}

// TestUnreachable shows that a commit fails as postponed while NATS cannot be reached, that reads
// work, and that a bucket that was made again begins without values.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	c := natstest.Start(t, natstest.Config{})
	conn := connect(t, c.URLs(), 1)
	v := values.New(t.Context(), conn, timer.Real(), slog.New(slog.DiscardHandler))
	t.Cleanup(v.Close)
	store := open(t, v, "h")
	must.Succeed(t, store.Commit([]plugins.KVWrite{set("k", "1")}, limit))
	c.Servers[0].Kill()
	if err := store.Commit([]plugins.KVWrite{set("k", "2")}, limit); plugins.ClassOf(err) != plugins.Postponed {
		t.Errorf("a commit without NATS: %v", err)
	}
	if v, _ := store.Get("k"); string(v) != "1" {
		t.Errorf("read %q", v)
	}
	must.Succeed(t, c.Servers[0].Restart())
	c.WaitReady(t)
	syncAll(t, v)
	must.Succeed(t, store.Commit([]plugins.KVWrite{set("k", "3")}, limit))

	js, err := jetstream.New(conn.NATS)
	must.Succeed(t, err)
	must.Succeed(t, js.DeleteStream(t.Context(), "KV_dr_f_kv"))
	must.Succeed(t, conn.Ensure(t.Context()))
	syncAll(t, v)
	if v, ok := store.Get("k"); ok {
		t.Errorf("read %q from a new bucket", v)
	}
	must.Succeed(t, store.Commit([]plugins.KVWrite{set("k", "4")}, limit))
}
