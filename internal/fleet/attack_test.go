package fleet_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/deltarouter/deltarouter/internal/fleet"
	"github.com/deltarouter/deltarouter/internal/fleet/lookup"
	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/sinktest"
)

// attacked is a fleet with exactly the printed permissions, and a worker that is an attacker.
type attacked struct {
	t                     *testing.T
	member, worker, admin *fleet.Conn
}

func attack(t *testing.T) *attacked {
	t.Helper()
	names := fleet.NamesOf("test")
	s := restricted(t, fleet.Permissions(names, fleet.Member), fleet.Permissions(names, fleet.Worker))
	a := &attacked{t, connect(t, as(s, "u0")), connectWorker(t, as(s, "u1")), connect(t, as(s, "admin"))}
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
	a := attack(t)
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
	if text := a.member.Refused.Recent(time.Now()); !strings.Contains(text, `"$JS.API.STREAM.PURGE.DR_test_CUTS"`) {
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
	a := attack(t)
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
