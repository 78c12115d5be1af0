package replica

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/fleet/fence"
	"github.com/deltarouter/deltarouter/test/effort"
	"github.com/deltarouter/deltarouter/test/must"
)

// Messages that somebody else puts into the stream leave the file as it is. The standby gets past
// them with a snapshot.
func TestHostileFrames(t *testing.T) {
	// Guarantee: standby-state
	t.Parallel()
	s := serve(t)
	leader, standby := newMember(t, s), newMember(t, s)
	leader.lead(nil)
	leader.write(3, 10)
	standby.standby()
	same(t, leader, standby)
	own := standby.db.Position()
	next := fmt.Sprintf("%d.%d", own.Term, own.Number+1)
	for name, header := range map[string]string{
		"no number": "a.b.c.d", "too many parts": next + ".0.400", "part behind the last": next + ".2.2", "damaged": next + ".0.1",
	} {
		before := standby.figures.Installed.Load()
		leader.inject(leader.conn.Names.Frame(frameToken), nats.Header{partHeader: {header}}, []byte("\x01damaged frame"))
		eventually(t, name, func() bool { return standby.figures.Installed.Load() > before })
		if p := standby.db.Position(); p != own {
			t.Errorf("%s: the standby has %v", name, p)
		}
		leader.write(1, 10)
		same(t, leader, standby)
		own = standby.db.Position()
		next = fmt.Sprintf("%d.%d", own.Term, own.Number+1)
	}
	// a frame of another file, whose encoding is right
	f := checkpoint.Frame{Position: checkpoint.Position{Term: own.Term, Number: own.Number + 1}, Before: own.Term, Ops: []byte("x")}
	leader.inject(leader.conn.Names.Frame(frameToken), nats.Header{partHeader: {next + ".0.1"}}, f.Append(nil))
	leader.write(1, 10)
	same(t, leader, standby)
}

// A snapshot that is not the one of the leader leaves the file as it is.
func TestHostileSnapshots(t *testing.T) {
	// Guarantee: snapshot-verified
	t.Parallel()
	s := serve(t)
	leader, standby := newMember(t, s), newMember(t, s)
	leader.lead(nil)
	leader.write(30, 1000)
	standby.standby()
	same(t, leader, standby)
	store, err := leader.conn.JS.ObjectStore(t.Context(), leader.conn.Names.Snapshots())
	must.Succeed(t, err)
	good, err := os.ReadFile(leader.path)
	must.Succeed(t, err)
	at := leader.db.Position()
	damaged := bytes.Clone(good)
	damaged[len(damaged)/2] ^= 1
	for i, c := range []struct {
		name, want string
		data       []byte
		change     func(*pointer)
	}{
		{"other size", "bytes in place of", good, func(p *pointer) { p.Size-- }},
		{"huge", "no room", good, func(p *pointer) { p.Size = 1 << 60 }},
		{"other digest", "its digest is", good, func(p *pointer) { p.Digest = "SHA-256=AAAA" }},
		{"missing", "not found", good, func(p *pointer) { p.Name = "none" }},
		{"no state file", "damaged", []byte("no state file"), nil},
		{"truncated", "damaged", good[:4096*3], nil},
		{"another term", "and not frame", good, func(p *pointer) { p.At.Term++ }},
		{"too old", "and not frame", good, func(p *pointer) { p.At.Number++ }},
		{"intact", "", good, nil},
	} {
		before, position := content(t, standby.path), standby.db.Position()
		name := fmt.Sprint("other", i)
		info, err := store.Put(t.Context(), jetstream.ObjectMeta{Name: name}, bytes.NewReader(c.data))
		must.Succeed(t, err)
		p := &pointer{Name: name, At: at, Size: info.Size, Digest: info.Digest}
		if c.change != nil {
			c.change(p)
		}
		err = standby.follow.install(t.Context(), p)
		if c.want == "" {
			must.Succeed(t, err)
		} else {
			must.Fail(t, err, c.want)
		}
		if content(t, standby.path) != before || standby.db.Position() != position {
			t.Errorf("%s: the file was changed", c.name)
		}
		if _, err := os.Stat(standby.path + snapshotMark); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: the snapshot is left: %v", c.name, err)
		}
	}
	leader.write(1, 10)
	same(t, leader, standby)
}

// A valid snapshot that somebody damages in the store: the standby asks for another one.
func TestSnapshotDamagedInStore(t *testing.T) {
	// Guarantee: snapshot-verified
	t.Parallel()
	s := serve(t)
	leader, standby := newMember(t, s), newMember(t, s)
	leader.lead(nil)
	leader.write(3, 10)
	leader.flush()
	record, err := lead(t.Context(), leader.conn)
	must.Succeed(t, err)
	p := parseNote(record.Note).Snapshot
	store, err := leader.conn.JS.ObjectStore(t.Context(), leader.conn.Names.Snapshots())
	must.Succeed(t, err)
	_, err = store.Put(t.Context(), jetstream.ObjectMeta{Name: p.Name}, bytes.NewReader(make([]byte, p.Size)))
	must.Succeed(t, err)
	standby.standby()
	same(t, leader, standby)
}

// With wait a transaction ends once its frame is published. Without NATS it ends nevertheless, and
// is counted.
func TestWait(t *testing.T) {
	// Guarantee: leader-without-nats
	t.Parallel()
	s := serve(t)
	leader := newMember(t, s)
	leader.lead(func(c *ShipperConfig) { c.Wait = true })
	leader.write(1, 100)
	leader.flush() // no transaction waits before the shipper runs
	for range 20 {
		leader.write(1, 100)
		if lag := leader.shipper.Lag(); lag.Frames > 0 && leader.figures.Late.Load() == 0 {
			t.Fatal("a transaction ended before its publication:", lag)
		}
	}
	late := leader.figures.Late.Load()
	s.stop()
	leader.write(3, 100)
	if n := leader.figures.Late.Load() - late; n != 3 {
		t.Error(n, "waits ended at their bound")
	}
	s.start()
	leader.flush()
	late = leader.figures.Late.Load()
	leader.write(1, 100)
	if lag := leader.shipper.Lag(); lag.Frames > 0 && leader.figures.Late.Load() == late {
		t.Error("after the outage a transaction ended before its publication")
	}
}

// Somebody deletes the stream: the leader makes it again and continues.
func TestStreamDeleted(t *testing.T) {
	t.Parallel()
	s := serve(t)
	leader, standby := newMember(t, s), newMember(t, s)
	leader.lead(nil)
	leader.write(3, 10)
	standby.standby()
	same(t, leader, standby)
	must.Succeed(t, connectAs(t, s, "admin").JS.DeleteStream(t.Context(), leader.conn.Names.Cuts()))
	must.Succeed(t, leader.conn.Ensure(t.Context()))
	leader.write(3, 10)
	select {
	case err := <-leader.ended:
		if !errors.Is(err, fence.ErrLeadGone) {
			t.Fatal(err)
		}
	case <-time.After(patience):
		t.Fatal("the leader does not notice")
	}
	publisher, before, err := fence.Open(t.Context(), fence.Config{
		Conn: leader.conn.NATS, Stream: leader.conn.Names.Cuts(), Lead: leader.conn.Names.CutsLead(), Holder: "again", After: leader.db.Position().Term, Log: discard(),
	})
	must.Succeed(t, err)
	db, shipper := leader.db, leader.shipper
	leader.start(func(ctx context.Context) error { return shipper.Run(ctx, db, publisher, before) })
	eventually(t, "the shipper runs again", func() bool { // before that Flush fails
		shipper.mu.Lock()
		defer shipper.mu.Unlock()
		return shipper.phase == running
	})
	leader.write(3, 10)
	same(t, leader, standby)
}

// The server that leads the stream is killed while the leader writes. Two servers are enough to
// follow, and for a standby that begins anew.
func TestServerKilled(t *testing.T) {
	// Guarantee: standby-state
	t.Parallel()
	s := serveAll(t, 3)
	leader, standby := newMember(t, s), newMember(t, s)
	leader.lead(nil)
	standby.standby()
	leader.write(20, 1000)
	same(t, leader, standby)
	for _, stream := range []string{leader.conn.Names.Cuts(), "OBJ_" + leader.conn.Names.Snapshots()} {
		eventually(t, "both followers of the stream have all of it", func() bool { return leader.current(stream) })
	}
	server := s.Leader(t, leader.conn.JS, leader.conn.Names.Cuts())
	server.Kill()
	leader.write(20, 1000)
	same(t, leader, standby)
	fresh := newMember(t, s)
	fresh.standby()
	same(t, leader, fresh)
	must.Succeed(t, server.Restart())
	s.WaitReady(t)
	leader.write(20, 1000)
	same(t, leader, standby)
}

// Random histories: members take over, restart, lose their files; the server restarts; frames are
// purged. In the end the files are equal.
func TestHistories(t *testing.T) {
	// Guarantee: standby-state
	t.Parallel()
	for seed := range uint64(effort.Rounds(2, 8, 200)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(seed, 16))
			s := serve(t)
			leader, standby := newMember(t, s), newMember(t, s)
			leader.lead(nil)
			standby.standby()
			for range 12 {
				leader.write(random.IntN(30), 1<<random.IntN(16))
				switch random.IntN(6) {
				case 0: // a clean hand-over
					same(t, leader, standby)
					leader.stop()
					takeOver(t, standby)
					leader, standby = standby, leader
					standby.standby()
				case 1: // a crash: what was not published is lost
					leader.flush()
					leader.write(random.IntN(3), 10)
					old := leader
					takeOver(t, standby) // it may lack what was purged
					leader, standby = standby, old
					standby.standby()
				case 2:
					standby.stop()
					if random.IntN(2) == 0 {
						must.Succeed(t, os.Remove(standby.path))
					}
					leader.write(random.IntN(20), 100)
					standby.standby()
				case 3:
					s.stop()
					leader.write(random.IntN(20), 100)
					s.start()
					must.Succeed(t, leader.conn.Ready(t.Context()))
					must.Succeed(t, standby.conn.Ready(t.Context()))
				case 4:
					standby.lossy, leader.lossy = true, true
					keep := uint64(random.IntN(4))
					eventually(t, "purge", func() bool { return leader.purge(keep) == nil })
				}
			}
			leader.write(1, 10)
			same(t, leader, standby)
		})
	}
}
