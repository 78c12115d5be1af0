package replica

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/fleet/fence"
	"github.com/deltarouter/deltarouter/test/must"
)

// A standby follows from the first snapshot on, over frames of several parts and batches; a fresh
// one takes the snapshot and continues.
func TestFollows(t *testing.T) {
	t.Parallel()
	s := serve(t)
	leader, standby := newMember(t, s), newMember(t, s)
	leader.lead(nil)
	leader.write(5, 10)
	standby.standby()
	same(t, leader, standby)
	leader.write(200, 1000)
	leader.write(2, 3<<20)
	same(t, leader, standby)
	if lag := standby.follow.Lag(); lag.Frames != 0 || !lag.Known {
		t.Error(lag)
	}
	if n := standby.figures.Installed.Load(); n != 1 {
		t.Error(n, "snapshots were installed")
	}
	fresh := newMember(t, s)
	fresh.standby()
	same(t, leader, fresh)
	// the standby counts a snapshot after it has replaced the file
	eventually(t, "one snapshot", func() bool { return fresh.figures.Installed.Load() == 1 })
	if a, b := leader.figures.Snapshots.Load(), fresh.figures.Installed.Load(); a != 1 || b != 1 {
		t.Error(a, b)
	}
}

// The lead record may be newer than the end of the stream on the server that a standby reads from,
// after an outage: the standby waits for the frames, and needs no snapshot.
func TestLaggingServer(t *testing.T) {
	// Guarantee: standby-state
	t.Parallel()
	m := newMember(t, serve(t))
	m.lead(nil)
	m.write(5, 10)
	m.flush()
	m.stop()
	m.open(checkpoint.Config{})
	f := NewFollower(FollowerConfig{Conn: m.conn, DB: m.db, Path: m.path, Log: discard()})
	f.note.Last = m.db.Position()
	f.note.Last.Number += 100
	stream, err := m.conn.JS.Stream(t.Context(), m.conn.Names.Cuts())
	must.Succeed(t, err)
	m.inject(m.conn.Names.Frame(beatToken), nil, nil) // the last message that the server has
	m.start(func(ctx context.Context) error {
		if err := f.read(ctx, stream.CachedInfo().State.LastSeq+1); ctx.Err() == nil {
			return err
		}
		return nil
	})
	eventually(t, "the standby has read the message", func() bool { return f.Lag().Known || len(m.ended) > 0 })
}

// While a standby is away, snapshots replace each other and the frames before are purged. The lead
// record stays.
func TestPurge(t *testing.T) {
	t.Parallel()
	s := serve(t)
	leader, standby := newMember(t, s), newMember(t, s)
	leader.lead(func(c *ShipperConfig) { c.every = 1 })
	standby.standby()
	same(t, leader, standby)
	standby.stop()
	for i := int64(2); i < 6; i++ {
		eventually(t, "snapshot", func() bool {
			leader.write(10, 10_000)
			return leader.figures.Snapshots.Load() >= i
		})
	}
	leader.write(10, 100)
	leader.flush()
	record, err := lead(t.Context(), leader.conn)
	must.Succeed(t, err)
	n := parseNote(record.Note)
	store, err := leader.conn.JS.ObjectStore(t.Context(), leader.conn.Names.Snapshots())
	must.Succeed(t, err)
	stream, err := leader.conn.JS.Stream(t.Context(), leader.conn.Names.Cuts())
	must.Succeed(t, err)
	eventually(t, "the snapshots are two", func() bool {
		objects, err := store.List(t.Context())
		return err == nil && len(objects) <= 3 // one may be in the making
	})
	info, err := stream.Info(t.Context())
	must.Succeed(t, err)
	if info.State.FirstSeq <= 10 || n.Previous == nil {
		t.Errorf("the stream begins with %d, the pointers are %+v %+v", info.State.FirstSeq, n.Snapshot, n.Previous)
	}
	standby.standby()
	same(t, leader, standby)
	if n := standby.figures.Installed.Load(); n < 2 {
		t.Error("the standby followed without the frames that were purged:", n)
	}
}

// Frames that somebody removes from the stream are a gap, which a new snapshot closes: also at the
// end of the stream, when no frame follows.
func TestGap(t *testing.T) {
	// Guarantee: standby-state
	t.Parallel()
	for name, after := range map[string]int{"within": 20, "at the end": 0} {
		t.Run(name, func(t *testing.T) {
			s := serve(t)
			leader, standby := newMember(t, s), newMember(t, s)
			leader.lead(nil)
			standby.standby()
			same(t, leader, standby)
			standby.stop()
			leader.write(20, 10)
			leader.flush()
			must.Succeed(t, leader.purge(0))
			leader.write(after, 10)
			standby.standby()
			same(t, leader, standby)
			// the standby counts a snapshot after it has replaced the file
			eventually(t, "two snapshots", func() bool { return leader.figures.Snapshots.Load() == 2 && standby.figures.Installed.Load() == 2 })
		})
	}
}

// The leader notices by itself that frames were removed, so that a standby without them can take
// over although the leader dies before.
func TestFramesRemoved(t *testing.T) {
	// Guarantee: standby-state
	t.Parallel()
	s := serve(t)
	leader, standby := newMember(t, s), newMember(t, s)
	leader.lead(func(c *ShipperConfig) { c.inspect = 20 * time.Millisecond })
	leader.write(20, 10)
	leader.flush()
	eventually(t, "the first snapshot", func() bool { return leader.figures.Snapshots.Load() == 1 })
	var removed uint64 // the last frame that was removed
	looks := 0
	eventually(t, "a snapshot with the frames that were removed", func() bool {
		if looks++; looks%500 == 1 { // the leader may not have counted them before
			leader.write(1, 10)
			leader.flush()
			removed = leader.db.Position().Number
			must.Succeed(t, leader.purge(0))
		}
		record, err := lead(t.Context(), leader.conn)
		return err == nil && parseNote(record.Note).Snapshot.At.Number >= removed
	})
	leader.end()
	must.Report(t, <-leader.ended)
	leader.end = nil
	standby.standby()
	eventually(t, "the standby has all", func() bool { return standby.db.Position() == leader.db.Position() })
}

// Without NATS the leader continues, and the standby catches up afterwards: with the frames that
// waited, or with a snapshot if they were too many.
func TestOutage(t *testing.T) {
	// Guarantee: leader-without-nats
	t.Parallel()
	for name, bound := range map[string]int{"kept": 0, "given up": 2000} {
		t.Run(name, func(t *testing.T) {
			s := serve(t)
			leader, standby := newMember(t, s), newMember(t, s)
			leader.lead(func(c *ShipperConfig) { c.maxQueued = bound })
			leader.write(3, 10)
			standby.standby()
			same(t, leader, standby)
			s.stop()
			leader.write(50, 100)
			if lag := leader.shipper.Lag(); lag.Frames == 0 || lag.Time <= 0 {
				t.Error("the leader counts nothing that is not published:", lag)
			}
			s.start()
			leader.write(5, 100)
			same(t, leader, standby)
			if n := leader.figures.Snapshots.Load(); n != 1 && bound == 0 || n < 2 && bound > 0 {
				t.Error(n, "snapshots")
			}
		})
	}
}

// A leader is deposed with frames that nobody else has. As a standby it takes the snapshot of its
// successor, which took over what it had published.
func TestDeposed(t *testing.T) {
	// Guarantee: deposed-file
	t.Parallel()
	s := serve(t)
	a, b := newMember(t, s), newMember(t, s)
	a.lead(nil)
	a.write(10, 10)
	b.standby()
	same(t, a, b)
	takeOver(t, b)
	a.write(3, 10)
	select { // the answer to the next batch shows it
	case err := <-a.ended:
		if a.ended <- nil; !errors.Is(err, fence.ErrDeposed) {
			t.Fatal(err)
		}
	case <-time.After(patience):
		t.Fatal("not deposed")
	}
	a.write(3, 10)
	b.write(2, 10)
	same(t, b, openAgain(a))
	if n := a.figures.Installed.Load(); n != 1 {
		t.Error(n, "snapshots were installed")
	}
	// back again, without a snapshot
	takeOver(t, a)
	a.write(2, 10)
	b.standby()
	same(t, a, b)
	if n := b.figures.Installed.Load(); n != 1 {
		t.Error("the leader's file was replaced although it continues:", n)
	}
}

func openAgain(m *member) *member {
	m.standby()
	return m
}

// takeOver makes a standby the leader.
func takeOver(t *testing.T, m *member) {
	t.Helper()
	note, err := Note(t.Context(), m.conn)
	must.Succeed(t, err)
	publisher, before, err := fence.Open(t.Context(), fence.Config{
		Conn: m.conn.NATS, Stream: m.conn.Names.Cuts(), Lead: m.conn.Names.CutsLead(), Holder: m.path, Note: note, Log: discard(),
	})
	must.Succeed(t, err)
	if m.follow == nil {
		m.standby()
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var incomplete *IncompleteError
	if err := m.follow.CatchUp(ctx); !errors.As(err, &incomplete) || !m.lossy {
		must.Succeed(t, err)
	}
	m.follow = nil
	m.leadWith(publisher, publisher.Term(), before, nil)
}

// The first leader of a fleet has nothing to catch up with; one that cannot have all of the stream
// is told.
func TestCatchUp(t *testing.T) {
	t.Parallel()
	s := serve(t)
	a, b := newMember(t, s), newMember(t, s)
	takeOver(t, a)
	a.write(10, 10)
	a.flush()
	a.stop()
	record, err := lead(t.Context(), a.conn)
	must.Succeed(t, err)
	store, err := a.conn.JS.ObjectStore(t.Context(), a.conn.Names.Snapshots())
	must.Succeed(t, err)
	must.Succeed(t, store.Delete(t.Context(), parseNote(record.Note).Snapshot.Name))
	b.standby()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var incomplete *IncompleteError
	if err := b.follow.CatchUp(ctx); !errors.As(err, &incomplete) {
		t.Error(err)
	}
	if p := b.db.Position(); p != (checkpoint.Position{}) {
		t.Error(p)
	}
}

// The position of a snapshot and its sequence in the stream are older than its content: fresh
// standbys need one snapshot each, also if the leader writes meanwhile.
func TestSnapshotsWhileWriting(t *testing.T) {
	t.Parallel()
	s := serve(t)
	leader := newMember(t, s)
	leader.lead(func(c *ShipperConfig) { c.every = 1 })
	leader.write(10, 5000)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				leader.write(1, 5000)
			}
		}
	}()
	for i := range int64(4) {
		eventually(t, "snapshot", func() bool { return leader.figures.Snapshots.Load() > i })
		fresh := newMember(t, s)
		fresh.standby()
		begun := leader.db.Position()
		eventually(t, "the standby follows", func() bool { return fresh.db.Position().Number > begun.Number })
		if n := fresh.figures.Installed.Load(); n != 1 {
			t.Error(n, "snapshots were installed")
		}
		fresh.stop()
	}
	close(stop)
	<-done
}
