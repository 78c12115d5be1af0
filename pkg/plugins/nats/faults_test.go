package nats_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/natstest/embedded"
	"github.com/deltarouter/deltarouter/test/sinktest"
)

// TestOutage: an unavailable server stops only the routes of its sink. When it is back, it gets
// their backlog once, including the events in flight: the stream drops duplicates.
func TestOutage(t *testing.T) {
	// Guarantee: broker-down
	s := embedded.Start(t, nil)
	st := stream(t, embedded.JetStream(t, s), jetstream.StreamConfig{MaxMsgSize: 100_000})
	w := sinktest.NewWire(t, s.Addr().String())
	o := sinktest.Outage{
		Sink: open(t, fmt.Sprintf("{servers: %q, timeout: 20s}", url(w))), Why: `nats "bus": ` + url(w) + ": ", Large: 200_000,
		Before: func() { w.Cut("") },
		After:  func() { w.Cut(s.Addr().String()) },
	}
	want := o.Run(t, 90)
	var got []string
	for _, m := range kept(t, st) {
		got = append(got, m.Header.Get("ce-route")+" "+m.Header.Get("ce-subject"))
	}
	sinktest.Compare(t, got, want)
}

// TestRestart: a server that stops during a write keeps the acknowledged events. The others are
// unavailable. After the restart and a repetition each event is there once, in the order of each
// key.
func TestRestart(t *testing.T) {
	// Guarantee: nats-delivery, broker-key-order
	store := t.TempDir()
	with := func(o *server.Options) { o.StoreDir = store }
	s := embedded.Start(t, with)
	stream(t, embedded.JetStream(t, s), jetstream.StreamConfig{})
	w := sinktest.NewWire(t, s.Addr().String())
	sink, all := open(t, fmt.Sprintf("{servers: %q, timeout: 30s}", url(w))), sinktest.Keyed(t, 300, "abc")
	// about 80 events and their acknowledgements
	restarted, cut := make(chan *server.Server, 1), w.CutAfter(100_000)
	go func() {
		<-cut
		embedded.Stop(s)
		s := embedded.Start(t, with)
		w.Cut(s.Addr().String())
		restarted <- s
	}()
	errs := sink.Write(t.Context(), all)
	s = <-restarted
	var again []event.Event
	for i, err := range errs {
		if err != nil {
			again = append(again, all[i])
		}
	}
	if v := sinktest.Verdicts(len(all), errs); !strings.HasPrefix(v, "d") || !strings.HasSuffix(v, "u") || strings.Contains(v, "r") {
		t.Fatalf("got %s", v)
	}
	sinktest.Insist(t, sink, again)
	st, err := embedded.JetStream(t, s).Stream(t.Context(), "k8s")
	must.Succeed(t, err)
	got, want := byKey(kept(t, st)), map[string]string{}
	for _, e := range all {
		want[e.Key] += e.ID + " "
	}
	for key := range want {
		if got[key] != want[key] {
			t.Errorf("of key %s there are %d bytes of ids, want %d in their order", key, len(got[key]), len(want[key]))
		}
	}
}

// byKey returns the ids of messages by the key of [sinktest.Keyed], in order. The object's number
// determines the key.
func byKey(messages []*jetstream.RawStreamMsg) map[string]string {
	all := map[string]string{}
	for _, m := range messages {
		var n int
		_, _ = fmt.Sscanf(m.Header.Get("ce-subject"), "default/web-%d", &n)
		all[string("abc"[n%3])] += m.Header.Get("Nats-Msg-Id") + " "
	}
	return all
}

// TestWindow: the stream drops duplicates within its window. A later repetition occurs twice,
// with the same id.
func TestWindow(t *testing.T) {
	// Guarantee: nats-delivery
	s := embedded.Start(t, nil)
	st := stream(t, embedded.JetStream(t, s), jetstream.StreamConfig{Duplicates: 100 * time.Millisecond})
	sink, all := open(t, "servers: "+s.ClientURL()), sinktest.Events(t, "web", 1, 20)
	sinktest.Until(t, "that the window is over", func() bool {
		if errs := sink.Write(t.Context(), all); errs != nil {
			t.Fatal(errs)
		}
		return len(kept(t, st)) == 2
	})
	for _, m := range kept(t, st) {
		if m.Header.Get("Nats-Msg-Id") != all[0].ID || m.Header.Get("ce-id") != all[0].ID {
			t.Errorf("another id: %v", m.Header)
		}
	}
}

// TestNobodyAnswers: a server without JetStream, or whose stream does not accept the subject, is
// unavailable. After a correction the events are delivered.
func TestNobodyAnswers(t *testing.T) {
	s := embedded.Start(t, func(o *server.Options) { o.JetStream = false })
	all := sinktest.Events(t, "web", 3, 20)
	sinktest.Complains(t, open(t, "servers: "+s.ClientURL()), all, "no stream has the subject", "JetStream")
	sinktest.Complains(t, open(t, fmt.Sprintf("{servers: %q, timeout: 300ms, stream: {name: k8s, create: true}}", s.ClientURL())), all, "stream k8s: ")

	s = embedded.Start(t, nil)
	st := stream(t, embedded.JetStream(t, s), jetstream.StreamConfig{Subjects: []string{"k8s.nodes.>"}})
	sink := open(t, "servers: "+s.ClientURL())
	sinktest.Complains(t, sink, all, "no stream has the subject")
	if _, err := embedded.JetStream(t, s).UpdateStream(t.Context(), jetstream.StreamConfig{Name: "k8s", Subjects: []string{"k8s.>"}}); err != nil {
		t.Fatal(err)
	}
	if errs := sink.Write(t.Context(), all); errs != nil || len(kept(t, st)) != 3 {
		t.Errorf("%d messages: %v", len(kept(t, st)), errs)
	}
}

// TestPublishedSubject: the subject follows the template, with one token per placeholder for any
// value.
func TestPublishedSubject(t *testing.T) {
	s := embedded.Start(t, nil)
	st := stream(t, embedded.JetStream(t, s), jetstream.StreamConfig{Subjects: []string{"c.>"}})
	all := sinktest.Events(t, "node.1>", 1, 20)
	config := fmt.Sprintf("{servers: %q, subject: 'c.{cluster}.{kind}.{op}.{route}.{type}.{namespace}.{name}'}", s.ClientURL())
	if errs := open(t, config).Write(t.Context(), all); errs != nil {
		t.Fatal(errs)
	}
	if got, want := kept(t, st)[0].Subject, "c.test.Pod.added.r.io%2Edeltarouter%2Eadded.default.node%2E1%3E-0"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
