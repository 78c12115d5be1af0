package fleet_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/deltarouter/deltarouter/internal/fleet"
	"github.com/deltarouter/deltarouter/internal/fleet/fence"
	"github.com/deltarouter/deltarouter/internal/fleet/lookup"
	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/sinktest"
)

// attacked is a fleet with exactly the printed permissions, and a worker that is an attacker.
type attacked struct {
	t                     *testing.T
	nats                  string // the section of the member
	member, worker, admin *fleet.Conn
}

// keys are those of the members.
var keys = fmt.Sprintf("{members: %q}", strings.Repeat("m", 32))

// attack starts a fleet, with fleet.keys or none.
func attack(t *testing.T, keys string) *attacked {
	t.Helper()
	names := fleet.NamesOf("test")
	s := restricted(t, fleet.Permissions(names, fleet.Member), fleet.Permissions(names, fleet.Worker))
	a := &attacked{t, as(s, "u0"), connect(t, as(s, "u0"), keys), connectWorker(t, as(s, "u1")), connect(t, as(s, "admin"))}
	must.Succeed(t, a.member.Ensure(t.Context()))
	return a
}

// last returns the last message of a subject.
func (a *attacked) last(stream, subject string) *nats.Msg {
	a.t.Helper()
	s, err := a.admin.JS.Stream(a.t.Context(), stream)
	must.Succeed(a.t, err)
	m, err := s.GetLastMsgForSubject(a.t.Context(), subject)
	must.Succeed(a.t, err)
	return &nats.Msg{Subject: m.Subject, Data: m.Data, Header: m.Header}
}

// forge makes JetStream publish a message to any subject: the answer to the read of a value that
// the worker has written goes there, with the rights of JetStream. It waits until the stream has
// it.
func (a *attacked) forge(stream, subject string, body []byte, header nats.Header) {
	a.t.Helper()
	s, err := a.admin.JS.Stream(a.t.Context(), stream)
	must.Succeed(a.t, err)
	before := s.CachedInfo().State.LastSeq
	values := a.worker.Names.Values()
	ack, err := a.worker.JS.PublishMsg(a.t.Context(), &nats.Msg{Subject: "$KV." + values + ".evil.x", Data: body, Header: header})
	must.Succeed(a.t, err)
	request, err := json.Marshal(map[string]any{"seq": ack.Sequence})
	must.Succeed(a.t, err)
	must.Succeed(a.t, a.worker.NATS.PublishRequest("$JS.API.DIRECT.GET.KV_"+values, subject, request))
	sinktest.Until(a.t, "the stream has the forged message", func() bool {
		info, err := s.Info(a.t.Context())
		return err == nil && info.State.LastSeq > before
	})
}

// lead opens a stream as its leader.
func (a *attacked) lead(stream, subject string) *fence.Publisher {
	a.t.Helper()
	p, _, err := fence.Open(a.t.Context(), fence.Config{
		Conn: a.member.NATS, Stream: stream, Lead: subject, Holder: "leader", Log: slog.New(slog.DiscardHandler),
		Keys: a.member.Members, Refused: func(err error) { a.member.Refuse(fleet.RefusedLead, err) },
	})
	must.Succeed(a.t, err)
	return p
}

// TestForgedLeadRecord: a worker that puts a lead record of its own into a stream deposes the
// leader only if there are no keys.
func TestForgedLeadRecord(t *testing.T) {
	// Guarantee: fleet-signed
	t.Parallel()
	forged, err := json.Marshal(fence.Record{Holder: "evil", ID: "evil", Term: 99})
	must.Succeed(t, err)
	rollup := nats.Header{nats.MsgRollup: {nats.MsgRollupSubject}}
	for name, keys := range map[string]string{"with keys": keys, "without": ""} {
		t.Run(name, func(t *testing.T) {
			a := attack(t, keys)
			n := a.member.Names
			p := a.lead(n.Cuts(), n.CutsLead())
			publish := func(p *fence.Publisher) error {
				_, err := p.Publish(t.Context(), []*nats.Msg{{Subject: n.Frame("log"), Data: []byte("frame")}}, nil)
				return err
			}
			must.Succeed(t, publish(p))
			first := a.last(n.Cuts(), n.CutsLead())
			a.forge(n.Cuts(), n.CutsLead(), forged, rollup)
			if err := publish(p); keys == "" {
				if !errors.Is(err, fence.ErrDeposed) {
					t.Fatalf("the attack is not what it was: %v", err)
				}
				return
			} else if err != nil {
				t.Fatal(err)
			}
			if n := a.member.Refused.Count(fleet.RefusedLead); n == 0 {
				t.Error("nothing was refused")
			}
			// the next leader has a larger term, and deposes the one before
			a.forge(n.Cuts(), n.CutsLead(), forged, rollup)
			second := a.lead(n.Cuts(), n.CutsLead())
			if second.Term() <= p.Term() || second.Term() > 1<<50 {
				t.Errorf("term %d follows %d", second.Term(), p.Term())
			}
			if err := publish(p); !errors.Is(err, fence.ErrDeposed) {
				t.Errorf("the former leader: %v", err)
			}
			// a signed record of the former leader deposes nobody
			a.forge(n.Cuts(), n.CutsLead(), first.Data, nats.Header{nats.MsgRollup: {nats.MsgRollupSubject}, fleet.MACHeader: first.Header[fleet.MACHeader]})
			must.Succeed(t, publish(second))
		})
	}
}

// nothing answers look-ups with nothing.
type nothing struct{}

// LookUp implements lookup.Lookups.
func (nothing) LookUp(context.Context, *lookup.Request) (*lookup.Answer, error) {
	return &lookup.Answer{}, nil
}

// TestReplySubject: the leader sends no answer to a subject of the fleet, where a worker may not
// publish, nor to the inbox of a member.
func TestReplySubject(t *testing.T) {
	// Guarantee: fleet-replies
	t.Parallel()
	a := attack(t, "")
	n := a.member.Names
	publish(t, a.member, n.Cuts(), n.CutsLead(), n.Frame("1"))
	before := a.last(n.Cuts(), n.CutsLead())
	ctx, cancel := context.WithCancel(t.Context())
	var serving sync.WaitGroup
	serving.Go(func() { must.Report(t, lookup.Serve(ctx, a.member, nothing{})) })
	defer serving.Wait()
	defer cancel()
	ask := func(reply string) {
		t.Helper()
		must.Succeed(t, a.worker.NATS.PublishRequest(n.Lookup(), reply, []byte(`{"handler":"h","source":"pods"}`)))
		must.Succeed(t, a.worker.NATS.Flush())
	}
	inbox := a.worker.NATS.NewInbox()
	answers, err := a.worker.NATS.SubscribeSync(inbox)
	must.Succeed(t, err)
	sinktest.Until(t, "the leader answers", func() bool {
		ask(inbox)
		m, err := answers.NextMsg(time.Second)
		return err == nil && m.Header.Get("Status") == ""
	})
	refused := []string{n.CutsLead(), n.WorkLead(), n.Inbox(fleet.Member) + ".x", "_INBOX.x", "_INBOX.dr-test2.x", "$JS.API.STREAM.PURGE." + n.Cuts()}
	for _, reply := range refused {
		ask(reply)
	}
	sinktest.Until(t, "all are refused", func() bool { return a.member.Refused.Count(fleet.RefusedReply) == uint64(len(refused)) })
	if after := a.last(n.Cuts(), n.CutsLead()); string(after.Data) != string(before.Data) {
		t.Errorf("the lead record is now %q", after.Data)
	}
	if text := a.member.Refused.Recent(time.Now()); !strings.Contains(text, "which is no inbox of a worker") {
		t.Errorf("the status has %q", text)
	}
	for _, reply := range []string{n.Inbox(fleet.Worker) + ".x", "_INBOX.dr-test.former"} {
		if !fleet.IsInbox(n, reply) {
			t.Errorf("%s is refused", reply)
		}
	}
}

// TestWorkerCannot: a worker reads no answers to members, and asks for no snapshots.
func TestWorkerCannot(t *testing.T) {
	t.Parallel()
	a := attack(t, "")
	n := a.worker.Names
	for _, subject := range []string{n.Inbox(fleet.Member) + ".>", "_INBOX.>", n.CutsLead(), n.Lookup()} {
		sub, err := a.worker.NATS.SubscribeSync(subject)
		must.Succeed(t, err)
		must.Succeed(t, a.worker.NATS.Flush())
		must.Fail(t, a.worker.NATS.LastError(), subject)
		_ = sub.Unsubscribe()
	}
	for _, subject := range []string{n.SnapshotRequest(), n.CutsLead(), n.Frame("log"), n.WorkLead(), n.WorkSubject("r", 1, 0, "k"), "$O." + n.Snapshots() + ".C.x"} {
		must.Succeed(t, a.worker.NATS.Publish(subject, nil))
		must.Succeed(t, a.worker.NATS.Flush())
		must.Fail(t, a.worker.NATS.LastError(), subject)
	}
}

// TestProbeOfKeys: a check with another key than that of the leader says so.
func TestProbeOfKeys(t *testing.T) {
	t.Parallel()
	other := fmt.Sprintf("{members: %q}", strings.Repeat("o", 32))
	for _, c := range []struct{ leader, checked, want string }{
		{keys, keys, ""},
		{keys, other, "it is signed with another key"},
		{"", keys, "it has no valid signature of the fleet"},
		{keys, "", "this configuration has no keys.members"},
		{"", "", ""},
	} {
		a := attack(t, c.leader)
		probe := func() string {
			found, err := fleet.Probe(t.Context(), section(t, a.nats, c.checked), fleet.Member)
			must.Succeed(t, err)
			return strings.Join(append(found.Mistakes, found.Warnings...), "; ")
		}
		if text := probe(); text != "" {
			t.Errorf("without a leader: %s", text)
		}
		a.lead(a.member.Names.Cuts(), a.member.Names.CutsLead())
		if text := probe(); !strings.Contains(text, c.want) || (text == "") != (c.want == "") {
			t.Errorf("keys %q, leader %q: %s, want %s", c.checked, c.leader, text, c.want)
		}
	}
}
