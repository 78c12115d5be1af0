package consume

import (
	"context"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/deltarouter/deltarouter/internal/fleet/owner"
	"github.com/deltarouter/deltarouter/test/effort"
	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/natstest/embedded"
)

const (
	partitions = 2
	pending    = 64
	keys       = 20
	leaseTTL   = time.Second
)

// ledger is what receivers see, in order: the first deliveries of each key must come as 1, 2, 3…
type ledger struct {
	mu         sync.Mutex
	high       map[string]int
	seen       map[string]bool // key/n
	duplicates int
	inversions []string
	changed    chan struct{} // signalled
}

func (l *ledger) add(worker, key string, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	id := key + "/" + strconv.Itoa(n)
	switch {
	case l.seen[id]:
		l.duplicates++
	case n != l.high[key]+1:
		l.inversions = append(l.inversions, fmt.Sprintf("%s by %s after %d", id, worker, l.high[key]))
	}
	l.seen[id], l.high[key] = true, max(l.high[key], n)
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

func (l *ledger) distinct() int { l.mu.Lock(); defer l.mu.Unlock(); return len(l.seen) }

// process is a worker that handles messages in order per key, as a pipeline does.
type process struct {
	*gate

	name   string
	conn   *nats.Conn
	dead   atomic.Bool
	lose   atomic.Int32 // messages to lose
	ledger *ledger
	losses *atomic.Int64
	give   chan struct{}
	kill   context.CancelFunc
	ended  chan struct{}
}

func start(t *testing.T, s *server.Server, name string, l *ledger, losses *atomic.Int64) *process {
	t.Helper()
	p := &process{name: name, ledger: l, losses: losses}
	p.run(t, s, p.open)
	return p
}

type openHandler func(ctx context.Context, l *owner.Lease, done func(...uint64)) (Handler, error)

// run runs a worker with a handler.
func (p *process) run(t *testing.T, s *server.Server, open openHandler) {
	t.Helper()
	p.gate, p.give, p.ended = &gate{}, make(chan struct{}), make(chan struct{})
	conn, js := connect(t, s, p.gate)
	p.conn = conn
	ctx, kill := context.WithCancel(context.WithoutCancel(t.Context()))
	p.kill = kill
	o := owner.New(owner.Config{
		Own: bucket(t, js, "own"), Members: bucket(t, js, "members"), Worker: p.name, Routes: map[string]string{"r": "h"}, TTL: leaseTTL,
		Log: slog.New(slog.DiscardHandler), Empty: func(context.Context, string, uint64) (bool, error) { return true, nil },
		Hold: func(ctx context.Context, l *owner.Lease) bool {
			return Config{
				NATS: conn, JS: js, Stream: stream, Filter: fmt.Sprintf("w.r.1.%d.*", l.Partition.Number), Prefix: fmt.Sprintf("w_r_1_%d_", l.Partition.Number),
				Pending: pending, AckWait: 2 * time.Second, Drain: patience, Log: slog.New(slog.DiscardHandler), Open: open,
				lose: func() bool { return p.lose.Load() > 0 && p.lose.Add(-1) >= 0 },
			}.Hold(ctx, l)
		},
	})
	go func() { defer close(p.ended); o.Run(ctx, p.give) }()
}

// die ends the process as SIGKILL does: nothing that it does afterwards has an effect.
func (p *process) die() {
	p.dead.Store(true)
	p.kill()
	p.conn.Close()
	<-p.ended
}

// end hands everything over.
func (p *process) end() {
	close(p.give)
	<-p.ended
	p.kill()
	p.conn.Close()
}

// handling handles the messages of one epoch in several lanes.
type handling struct {
	*process

	lease *owner.Lease
	done  func(...uint64)
	stop  chan struct{}
	lanes [8]chan *Message
	all   sync.WaitGroup
}

func (p *process) open(_ context.Context, l *owner.Lease, done func(...uint64)) (Handler, error) {
	h := &handling{process: p, lease: l, done: done, stop: make(chan struct{})}
	for i := range h.lanes {
		h.lanes[i] = make(chan *Message, 2*pending)
		h.all.Go(func() { h.handle(h.lanes[i]) })
	}
	return h, nil
}

func (h *handling) Take(m *Message, _ bool) (bool, error) {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(m.Subject))
	h.lanes[hash.Sum32()%8] <- m
	return false, nil
}

func (h *handling) Close() {
	select {
	case <-h.lease.Lost():
		h.losses.Add(1)
	default:
	}
	close(h.stop)
	h.all.Wait()
}

func (h *handling) handle(lane chan *Message) {
	wait := func() bool {
		select {
		case <-h.stop:
			return false
		case <-time.After(time.Duration(rand.IntN(2000)) * time.Microsecond):
		}
		h.pass()
		return !h.dead.Load()
	}
	// A message waits while the lease is not valid: a late confirmation may make it valid again.
	begins := func() bool {
		for wait() {
			if h.lease.Valid() {
				return true
			}
		}
		return false
	}
	for {
		var m *Message
		select {
		case <-h.stop:
			return
		case m = <-lane:
		}
		if !begins() {
			continue
		}
		key := m.Subject[strings.LastIndexByte(m.Subject, '.')+1:]
		n, _ := strconv.Atoi(string(m.Data))
		h.ledger.add(h.name, key, n)
		if wait() {
			h.done(m.Sequence)
		}
	}
}

// Workers die, stand still, lose messages and connections, and hand over, while messages come: none
// is lost, the first deliveries of each key are in order, and only messages in hand at a loss are
// repeated.
func TestRandom(t *testing.T) {
	// Guarantee: workers-deliver
	t.Parallel()
	s := embedded.Start(t, nil)
	conn, js := connect(t, s, &gate{})
	defer conn.Close()
	setup(t, js)
	_, err := owner.Announce(t.Context(), owner.KV(bucket(t, js, "own")), "r", "r", "h", partitions, nil)
	must.Succeed(t, err)

	l := &ledger{high: map[string]int{}, seen: map[string]bool{}, changed: make(chan struct{}, 1)}
	var losses atomic.Int64
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	published, total := map[string]int{}, 0
	publish := func(n int) {
		for range n {
			k := random.IntN(keys)
			key := "k" + strconv.Itoa(k)
			published[key]++
			total++
			_, err := js.Publish(t.Context(), fmt.Sprintf("w.r.1.%d.%s", k%partitions, key), []byte(strconv.Itoa(published[key])))
			must.Succeed(t, err)
		}
	}
	// until publishes a few messages at a time until n more were delivered
	until := func(n int) {
		t.Helper()
		target := l.distinct() + n
		end := time.After(patience)
		for l.distinct() < target {
			if total-l.distinct() < 4*pending {
				publish(10)
			}
			select {
			case <-l.changed:
			case <-end:
				t.Fatalf("only %d of %d messages were delivered", l.distinct(), total)
			}
		}
	}
	workers := []*process{start(t, s, "w0", l, &losses), start(t, s, "w1", l, &losses), start(t, s, "w2", l, &losses)}
	publish(2 * pending)
	events := map[string]int{}
	for i := range effort.Rounds(8, 24, 500) {
		until(100 + random.IntN(200))
		n := random.IntN(len(workers))
		w := workers[n]
		event := []string{"kill", "pause", "hand over", "lose", "reconnect"}[random.IntN(5)]
		events[event]++
		switch event {
		case "kill":
			w.die()
			workers[n] = start(t, s, fmt.Sprint("w", n, "-", i), l, &losses)
		case "pause":
			resume := w.pause()
			time.AfterFunc(time.Duration(random.Int64N(int64(3*leaseTTL))), resume)
		case "hand over":
			w.end()
			workers[n] = start(t, s, fmt.Sprint("w", n, "-", i), l, &losses)
		case "lose":
			for _, w := range workers {
				w.lose.Store(1 + random.Int32N(3))
			}
		case "reconnect":
			must.Succeed(t, w.conn.ForceReconnect())
		}
	}
	for end := time.After(patience); l.distinct() < total; {
		select {
		case <-l.changed:
		case <-end:
			t.Fatalf("%d of %d messages were lost", total-l.distinct(), total)
		}
	}
	var ends sync.WaitGroup
	for _, w := range workers {
		ends.Go(w.end)
	}
	ends.Wait()
	empty, err := Empty(t.Context(), conn, stream, "w.r.1.>")
	must.Succeed(t, err)
	if !empty {
		t.Error("the stream is not empty")
	}
	for _, text := range l.inversions {
		t.Errorf("out of order: %s", text)
	}
	most := int(losses.Load()+int64(events["kill"]*partitions)) * pending
	t.Logf("%d messages, %v, %d leases lost, %d duplicates (at most %d)", total, events, losses.Load(), l.duplicates, most)
	if l.duplicates > most {
		t.Errorf("%d duplicates, at most %d are expected", l.duplicates, most)
	}
}
