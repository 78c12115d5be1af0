package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/fleet"
	"github.com/deltarouter/deltarouter/internal/fleet/consume"
	"github.com/deltarouter/deltarouter/internal/fleet/deadletters"
	"github.com/deltarouter/deltarouter/internal/fleet/fence"
	"github.com/deltarouter/deltarouter/internal/fleet/owner"
	"github.com/deltarouter/deltarouter/internal/fleet/replica"
	"github.com/deltarouter/deltarouter/internal/fleet/values"
	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/sinktest"
)

// TestPartsOfFleet: the parts of a leader, a standby and a worker work with exactly the printed
// permissions.
func TestPartsOfFleet(t *testing.T) {
	t.Parallel()
	names := fleet.NamesOf("test")
	s := restricted(t, fleet.Permissions(names, fleet.Member), fleet.Permissions(names, fleet.Worker))
	leader, standby, worker := connect(t, as(s, "u0")), connect(t, as(s, "u0")), connectWorker(t, as(s, "u1"))
	must.Succeed(t, leader.Ensure(t.Context()))
	ctx, cancel := context.WithCancel(t.Context())
	var wait sync.WaitGroup
	defer wait.Wait()
	defer cancel()
	leadAndFollow(ctx, t, &wait, leader, standby)
	handle(ctx, t, &wait, leader, worker)
	remember(t, worker)
	for _, c := range []*fleet.Conn{leader, standby, worker} {
		if err := c.NATS.LastError(); errors.Is(err, nats.ErrPermissionViolation) {
			t.Error(err)
		}
	}
}

// leadAndFollow publishes cuts and a snapshot, which a standby takes, and imports a dead letter.
func leadAndFollow(ctx context.Context, t *testing.T, wait *sync.WaitGroup, leader, standby *fleet.Conn) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	note, err := replica.Note(ctx, leader)
	must.Succeed(t, err)
	publisher, before, err := fence.Open(ctx, fence.Config{
		Conn: leader.NATS, Stream: leader.Names.Cuts(), Lead: leader.Names.CutsLead(), Holder: "a", Note: note, Log: log,
	})
	must.Succeed(t, err)
	shipper := replica.NewShipper(replica.ShipperConfig{Conn: leader, Figures: &replica.Figures{}, Log: log})
	db, err := checkpoint.Open(checkpoint.Config{Path: filepath.Join(t.TempDir(), "state.db"), Shipped: shipper.Ship, Confirm: shipper.Confirm, Term: publisher.Term()})
	must.Succeed(t, err)
	letters, err := db.Letters(checkpoint.LettersConfig{})
	must.Succeed(t, err)
	write := func() {
		must.Succeed(t, db.Write(checkpoint.Cut{Memories: []checkpoint.MemoryCut{{Handler: "h", Put: []checkpoint.Value{{Key: "k", Value: []byte("v")}}}}}))
	}
	write()
	path := filepath.Join(t.TempDir(), "state.db")
	copied, err := checkpoint.Open(checkpoint.Config{Path: path})
	must.Succeed(t, err)
	follower := replica.NewFollower(replica.FollowerConfig{Conn: standby, DB: copied, Path: path, Figures: &replica.Figures{}, Log: log})
	inner, stop := context.WithCancel(ctx)
	var parts sync.WaitGroup
	parts.Go(func() { must.Report(t, shipper.Run(inner, db, publisher, before)) })
	parts.Go(func() { follower.Run(inner) })
	parts.Go(func() { deadletters.Import(inner, leader, letters, log) })
	wait.Go(func() {
		<-ctx.Done()
		stop()
		parts.Wait()
		must.Report(t, errors.Join(db.Close(), copied.Close()))
	})
	for range 2 {
		sinktest.Until(t, "the standby follows", func() bool { return copied.Position() == db.Position() })
		write()
	}
	must.Succeed(t, shipper.Flush(ctx))
}

// handle gives a delta to a worker by way of an owned partition, and a dead letter back.
func handle(ctx context.Context, t *testing.T, wait *sync.WaitGroup, leader, worker *fleet.Conn) {
	t.Helper()
	n, log := leader.Names, slog.New(slog.DiscardHandler)
	empty := func(conn *fleet.Conn) owner.Empty {
		return func(ctx context.Context, route string, generation uint64) (bool, error) {
			return consume.Empty(ctx, conn.NATS, n.Work(), fmt.Sprintf("dr.test.w.%s.%d.>", route, generation))
		}
	}
	own, err := leader.JS.KeyValue(ctx, n.Owners())
	must.Succeed(t, err)
	generation, err := owner.Announce(ctx, owner.KV(own), fleet.Token("r"), "r", "hash", 1, empty(leader))
	must.Succeed(t, err)
	publish(t, leader, n.Work(), n.WorkLead(), n.WorkSubject("r", generation, 0, "default/web"))
	own, err = worker.JS.KeyValue(ctx, n.Owners())
	must.Succeed(t, err)
	members, err := worker.JS.KeyValue(ctx, n.Members())
	must.Succeed(t, err)
	taken := make(chan *consume.Message, 1)
	c := consume.Config{
		NATS: worker.NATS, JS: worker.JS, Stream: n.Work(), Filter: n.WorkFilter("r", generation, 0), Prefix: "w_r_", Pending: 16, Log: log,
		Open: func(_ context.Context, _ *owner.Lease, done func(...uint64)) (consume.Handler, error) {
			return &handler{taken, done}, nil
		},
	}
	o := owner.New(owner.Config{
		Own: own, Members: members, Worker: "w1", Routes: map[string]string{fleet.Token("r"): "hash"}, TTL: 2 * time.Second, Log: log,
		Hold: c.Hold, Empty: empty(worker),
	})
	give := make(chan struct{})
	done := make(chan struct{})
	wait.Go(func() { defer close(done); o.Run(ctx, give) })
	<-taken
	sinktest.Until(t, "the message is acknowledged", func() bool {
		stream, err := leader.JS.Stream(ctx, n.Work())
		must.Succeed(t, err)
		return stream.CachedInfo().State.Msgs == 1 // the lead record
	})
	close(give)
	<-done
}

// remember writes kv of a handler, and reads it with another process.
func remember(t *testing.T, worker *fleet.Conn) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	write, read := values.New(t.Context(), worker, timer.Real(), log), values.New(t.Context(), worker, timer.Real(), log)
	defer write.Close()
	defer read.Close()
	kv, err := write.Open(t.Context(), "h")
	must.Succeed(t, err)
	must.Succeed(t, kv.Commit([]plugins.KVWrite{{Key: "a", Value: []byte("1")}}, 1<<20))
	must.Succeed(t, kv.Commit([]plugins.KVWrite{{Key: "a", Delete: true}, {Key: "b", Value: []byte("2")}}, 1<<20))
	kv, err = read.Open(t.Context(), "h")
	must.Succeed(t, err)
	must.Succeed(t, read.Sync(t.Context()))
	if value, ok := kv.Get("b"); !ok || string(value) != "2" {
		t.Errorf("got %q", value)
	}
}

// handler is done with each message at once.
type handler struct {
	taken chan<- *consume.Message
	done  func(sequences ...uint64)
}

func (h *handler) Take(m *consume.Message, _ bool) (bool, error) {
	h.taken <- m
	go h.done(m.Sequence)
	return false, nil
}

func (*handler) Close() {}
