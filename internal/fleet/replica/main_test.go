package replica

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.etcd.io/bbolt"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/fleet"
	"github.com/deltarouter/deltarouter/internal/fleet/fence"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/test/effort"
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

// testServer is the NATS server of a test, which may be killed and started again.
type testServer struct {
	*natstest.Cluster

	t    testing.TB
	keys string // fleet.keys of the members; empty: none
}

func serve(t testing.TB) *testServer {
	t.Helper()
	return serveAll(t, 1)
}

func serveAll(t testing.TB, servers int) *testServer {
	t.Helper()
	// the members have only the permissions that the documents say
	users := fmt.Sprintf("authorization { users: [{user: admin, password: x}, {user: member, password: x, %s}, {user: worker, password: x, %s}] }",
		fleet.Permissions(fleet.NamesOf("test"), fleet.Member), fleet.Permissions(fleet.NamesOf("test"), fleet.Worker))
	return &testServer{natstest.Start(t, natstest.Config{Servers: servers, More: users}), t, ""}
}

func (s *testServer) stop() { s.Servers[0].Kill() }

func (s *testServer) start() {
	s.t.Helper()
	must.Succeed(s.t, s.Servers[0].Restart())
	s.WaitReady(s.t)
}

func connect(t testing.TB, s *testServer) *fleet.Conn {
	t.Helper()
	return connectAs(t, s, "member")
}

func connectAs(t testing.TB, s *testServer, user string) *fleet.Conn {
	t.Helper()
	cfg := &config.Fleet{Name: "test", Replicas: len(s.Servers)}
	for _, url := range s.URLs() {
		cfg.NATS.Servers = append(cfg.NATS.Servers, strings.Replace(url, "//", "//"+user+":x@", 1))
	}
	if s.keys != "" {
		n, problems := config.ParseNode("test.yaml", []byte(s.keys))
		if problems = append(problems, n.Decode(&cfg.Keys)...); len(problems) > 0 {
			t.Fatal(problems)
		}
	}
	c, err := fleet.Connect(t.Context(), cfg, "test", discard())
	must.Succeed(t, err)
	t.Cleanup(func() { must.Report(t, c.Close()) })
	must.Succeed(t, c.Ready(t.Context()))
	// the peers of a cluster that has just started do not know each other
	eventually(t, "streams", func() bool { return c.Ensure(t.Context()) == nil })
	return c
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

// eventually waits until a condition holds.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); !holds(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

// member is a process of the fleet, with a state file of its own.
type member struct {
	t    testing.TB
	conn *fleet.Conn
	path string
	db   *checkpoint.DB

	end     context.CancelFunc
	ended   chan error
	shipper *Shipper
	follow  *Follower
	figures *Figures
	writes  int
	lossy   bool // frames were purged that this member may not have
}

func newMember(t testing.TB, s *testServer) *member {
	t.Helper()
	m := &member{t: t, conn: connect(t, s), path: filepath.Join(t.TempDir(), "state.db"), figures: &Figures{}}
	t.Cleanup(m.stop)
	return m
}

// stop ends the role, without a last word.
func (m *member) stop() {
	if m.end != nil {
		m.end()
		if err := <-m.ended; err != nil && !errors.Is(err, fence.ErrDeposed) {
			m.t.Error(err)
		}
		m.end = nil
	}
	if m.db != nil {
		must.Report(m.t, m.db.Close())
		m.db = nil
	}
}

// start begins a role.
func (m *member) start(run func(ctx context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	m.end, m.ended = cancel, make(chan error, 1)
	go func() { m.ended <- run(ctx) }()
}

// lead makes the member the leader, as after an election without a standby.
func (m *member) lead(change func(*ShipperConfig)) {
	m.t.Helper()
	note, err := Note(m.t.Context(), m.conn)
	must.Succeed(m.t, err)
	publisher, before, err := fence.Open(m.t.Context(), fence.Config{
		Conn: m.conn.NATS, Stream: m.conn.Names.Cuts(), Lead: m.conn.Names.CutsLead(), Holder: m.path, Note: note, Log: discard(),
		Keys: m.conn.Members, Refused: func(err error) { m.conn.Refuse(fleet.RefusedLead, err) },
	})
	must.Succeed(m.t, err)
	m.leadWith(publisher, publisher.Term(), before, change)
}

func (m *member) leadWith(publisher Publisher, term uint64, before fence.Record, change func(*ShipperConfig)) {
	m.t.Helper()
	m.stop()
	cfg := ShipperConfig{Conn: m.conn, Figures: m.figures, Log: discard(), beat: 50 * time.Millisecond, inspect: time.Hour}
	if change != nil {
		change(&cfg)
	}
	m.shipper = NewShipper(cfg)
	m.open(checkpoint.Config{Shipped: m.shipper.Ship, Confirm: m.shipper.Confirm, Term: term})
	db, s := m.db, m.shipper
	m.start(func(ctx context.Context) error { return s.Run(ctx, db, publisher, before) })
}

func (m *member) open(cfg checkpoint.Config) {
	m.t.Helper()
	cfg.Path = m.path
	var err error
	m.db, err = checkpoint.Open(cfg)
	must.Succeed(m.t, err)
	if m.db.Quarantined() != "" {
		m.t.Fatal("an intact file was moved away")
	}
}

// standby makes the member a standby.
func (m *member) standby() {
	m.t.Helper()
	m.stop()
	m.open(checkpoint.Config{})
	m.follow = NewFollower(FollowerConfig{Conn: m.conn, DB: m.db, Path: m.path, Figures: m.figures, Log: discard(), poll: 50 * time.Millisecond})
	f := m.follow
	m.start(func(ctx context.Context) error { f.Run(ctx); return nil })
}

// write writes n transactions with values of a size.
func (m *member) write(n, size int) {
	m.t.Helper()
	for range n {
		m.writes++
		value := []byte(fmt.Sprint(m.writes, m.path, strings.Repeat("x", size)))
		must.Succeed(m.t, m.db.Write(checkpoint.Cut{Memories: []checkpoint.MemoryCut{{
			Handler: "h", Put: []checkpoint.Value{{Key: fmt.Sprint("k", m.writes%50), Value: incompressible(value, m.writes)}},
		}}}))
	}
}

// incompressible mixes bytes, so that a value takes its size in the file.
func incompressible(b []byte, seed int) []byte {
	x := uint64(seed)*0x9e3779b97f4a7c15 + 1
	for i := range b {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b[i] ^= byte(x)
	}
	return b
}

func (m *member) flush() {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	must.Succeed(m.t, m.shipper.Flush(ctx))
}

// same waits until the file of the standby has the position of the leader's, and compares them.
func same(t testing.TB, leader, standby *member) {
	t.Helper()
	leader.flush()
	eventually(t, "the standby follows", func() bool {
		return standby.db.Position() == leader.db.Position()
	})
	if got, want := content(t, standby.path), content(t, leader.path); got != want {
		t.Fatalf("the leader's file has\n%.3000sthe standby's\n%.3000s", want, got)
	}
}

// content returns all buckets and values of a file.
func content(t testing.TB, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	must.Succeed(t, err)
	copied := path + ".content"
	must.Succeed(t, os.WriteFile(copied, data, 0o600))
	db, err := bbolt.Open(copied, 0o600, nil)
	must.Succeed(t, err)
	defer db.Close()
	var text strings.Builder
	var walk func(b *bbolt.Bucket) error
	walk = func(b *bbolt.Bucket) error {
		return b.ForEach(func(key, value []byte) error {
			if value != nil {
				fmt.Fprintf(&text, "%q %x\n", key, value)
				return nil
			}
			fmt.Fprintf(&text, "%q (%d)\n", key, b.Bucket(key).Sequence())
			return walk(b.Bucket(key))
		})
	}
	must.Succeed(t, db.View(func(tx *bbolt.Tx) error { return walk(tx.Cursor().Bucket()) }))
	return text.String()
}

// purge removes frames from the stream, except the last ones.
func (m *member) purge(keep uint64) error {
	ctx, cancel := context.WithTimeout(m.t.Context(), time.Second)
	defer cancel()
	stream, err := m.conn.JS.Stream(ctx, m.conn.Names.Cuts())
	if err == nil {
		err = stream.Purge(ctx, jetstream.WithPurgeSubject(m.conn.Names.Frames()), jetstream.WithPurgeKeep(keep))
	}
	return err
}

// current reports whether two servers beside the leader of a stream have all of it.
func (m *member) current(stream string) bool {
	ctx, cancel := context.WithTimeout(m.t.Context(), 10*time.Second)
	defer cancel()
	found, err := m.conn.JS.Stream(ctx, stream)
	if err != nil || found.CachedInfo().Cluster == nil {
		return false
	}
	n := 0
	for _, peer := range found.CachedInfo().Cluster.Replicas {
		if peer.Current && !peer.Offline {
			n++
		}
	}
	return n == 2
}

// inject is another client's publication, past the fence.
func (m *member) inject(subject string, header nats.Header, data []byte) {
	m.t.Helper()
	_, err := m.conn.JS.PublishMsg(m.t.Context(), &nats.Msg{Subject: subject, Header: header, Data: data})
	must.Succeed(m.t, err)
}
