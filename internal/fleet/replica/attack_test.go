package replica

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltarouter/deltarouter/internal/fleet"
	"github.com/deltarouter/deltarouter/internal/fleet/fence"
	"github.com/deltarouter/deltarouter/test/must"
)

// attacker has the permissions of a worker, and a state file that the standby shall install.
type attacker struct {
	t    *testing.T
	conn *nats.Conn
	js   jetstream.JetStream
	n    int
}

func newAttacker(t *testing.T, s *testServer) *attacker {
	t.Helper()
	conn, err := nats.Connect(strings.Replace(s.URLs()[0], "//", "//worker:x@", 1), nats.CustomInboxPrefix(fleet.NamesOf("test").Inbox(fleet.Worker)))
	must.Succeed(t, err)
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	must.Succeed(t, err)
	return &attacker{t: t, conn: conn, js: js}
}

// forge makes JetStream publish a message to any subject, with rights of its own: the answer to the
// read of a value that the attacker has written. Messages arrive in order.
func (a *attacker) forge(subject string, body []byte, header nats.Header) {
	a.t.Helper()
	a.n++
	values := fleet.NamesOf("test").Values()
	ack, err := a.js.PublishMsg(a.t.Context(), &nats.Msg{Subject: fmt.Sprintf("$KV.%s.evil.k%d", values, a.n), Data: body, Header: header})
	must.Succeed(a.t, err)
	request, err := json.Marshal(map[string]any{"seq": ack.Sequence})
	must.Succeed(a.t, err)
	must.Succeed(a.t, a.conn.PublishRequest("$JS.API.DIRECT.GET.KV_"+values, subject, request))
	must.Succeed(a.t, a.conn.Flush())
}

// install puts a state file into the stream and the Object Store, as a leader does.
func (a *attacker) install(leader *member, file []byte, note note) {
	a.t.Helper()
	names := fleet.NamesOf("test")
	const nuid, part = "EVIL", 256 << 10
	chunks := 0
	for b := file; len(b) > 0; b = b[min(part, len(b)):] {
		a.forge("$O."+names.Snapshots()+".C."+nuid, b[:min(part, len(b))], nil)
		chunks++
	}
	sum := sha256.New()
	sum.Write(file)
	note.Snapshot.Size, note.Snapshot.Digest = uint64(len(file)), jetstream.GetObjectDigestValue(sum)
	meta, err := json.Marshal(map[string]any{
		"name": note.Snapshot.Name, "bucket": names.Snapshots(), "nuid": nuid, "size": len(file), "chunks": chunks, "digest": note.Snapshot.Digest, "mtime": time.Now(),
	})
	must.Succeed(a.t, err)
	a.forge("$O."+names.Snapshots()+".M."+base64.URLEncoding.EncodeToString([]byte(note.Snapshot.Name)), meta, nil)
	store, err := leader.conn.JS.ObjectStore(a.t.Context(), names.Snapshots())
	must.Succeed(a.t, err)
	eventually(a.t, "the file is in the store", func() bool {
		_, err := store.GetInfo(a.t.Context(), note.Snapshot.Name)
		return err == nil
	})
	record, err := json.Marshal(fence.Record{Holder: "evil", ID: "evil", Term: note.Snapshot.At.Term, Note: note.encode()})
	must.Succeed(a.t, err)
	a.forge(names.CutsLead(), record, nats.Header{nats.MsgRollup: {nats.MsgRollupSubject}})
	// so that the standby wants a snapshot
	a.forge(names.Frame(frameToken), []byte("\x01damaged frame"), nats.Header{partHeader: {"1.99.0.1"}})
}

// TestForgedState: a worker makes the standby install a state file only if there are no keys.
func TestForgedState(t *testing.T) {
	// Guarantee: fleet-signed
	t.Parallel()
	home := newMember(t, serve(t)) // of the attacker
	home.lead(nil)
	home.write(40, 100)
	home.flush()
	at := home.db.Position()
	home.stop()
	evil, err := os.ReadFile(home.path)
	must.Succeed(t, err)
	for name, keys := range map[string]string{"with keys": fmt.Sprintf("{members: %q}", strings.Repeat("m", 32)), "without": ""} {
		t.Run(name, func(t *testing.T) {
			s := serve(t)
			s.keys = keys
			leader, standby := newMember(t, s), newMember(t, s)
			leader.lead(nil)
			leader.write(5, 100)
			standby.standby()
			same(t, leader, standby)
			installed := standby.figures.Installed.Load()
			a := newAttacker(t, s)
			a.install(leader, evil, note{Snapshot: &pointer{Name: "evil", At: at, Seq: 1 << 40}})
			if keys == "" {
				eventually(t, "the standby has the state of the attacker", func() bool { return standby.figures.Installed.Load() > installed })
				standby.stop()
				if content(t, standby.path) != content(t, home.path) {
					t.Error("the attack is not what it was")
				}
				return
			}
			eventually(t, "the standby refuses the frame", func() bool { return standby.conn.Refused.Count(fleet.RefusedFrame) > 0 })
			eventually(t, "the leader refuses the record", func() bool { return leader.conn.Refused.Count(fleet.RefusedLead) > 0 })
			leader.write(5, 100)
			same(t, leader, standby)
			// a frame and a record of the leader again, elsewhere
			stream, err := leader.conn.JS.Stream(t.Context(), leader.conn.Names.Cuts())
			must.Succeed(t, err)
			frame, err := stream.GetLastMsgForSubject(t.Context(), leader.conn.Names.Frame(frameToken))
			must.Succeed(t, err)
			before := standby.conn.Refused.Count(fleet.RefusedFrame)
			a.forge(leader.conn.Names.Frame("other"), frame.Data, nats.Header{partHeader: frame.Header[partHeader], fleet.MACHeader: frame.Header[fleet.MACHeader]})
			a.forge(leader.conn.Names.Frame(frameToken), frame.Data, nats.Header{partHeader: {"1.100.0.1"}, fleet.MACHeader: frame.Header[fleet.MACHeader]})
			eventually(t, "the standby refuses both", func() bool { return standby.conn.Refused.Count(fleet.RefusedFrame) == before+2 })
			leader.write(5, 100)
			same(t, leader, standby)
			if n := standby.figures.Installed.Load(); n != installed {
				t.Errorf("%d snapshots were installed", n-installed)
			}
		})
	}
}

// TestOtherKeys: a standby with other keys than the leader does not follow it, and does not say
// that it has all; with those of the leader it follows.
func TestOtherKeys(t *testing.T) {
	t.Parallel()
	s := serve(t)
	m, o := strings.Repeat("m", 32), strings.Repeat("o", 32)
	s.keys = fmt.Sprintf("{members: %q}", m)
	leader := newMember(t, s)
	s.keys = fmt.Sprintf("{members: %q}", o)
	other := newMember(t, s)
	s.keys = fmt.Sprintf("{members: %q, accept: {members: %q}}", o, m)
	next := newMember(t, s)
	leader.lead(nil)
	leader.write(5, 100)
	other.standby()
	next.standby()
	same(t, leader, next)
	eventually(t, "the other one refuses", func() bool { return other.conn.Refused.Count(fleet.RefusedLead) > 0 })
	if other.follow.Lag().Known || other.figures.Installed.Load() > 0 {
		t.Error("a standby with other keys follows")
	}
	leader.stop() // it would take the record of the new key for a forged one, and replace it
	next.stop()
	next.lead(nil) // it takes over, and the standby with both keys follows it
	s.keys = fmt.Sprintf("{members: %q, accept: {members: %q}}", m, o)
	former := newMember(t, s)
	former.standby()
	next.write(5, 100)
	same(t, next, former)
}
