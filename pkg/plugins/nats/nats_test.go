package nats_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/nats"
	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/natstest/embedded"
	"github.com/deltarouter/deltarouter/test/sinktest"
)

func TestContract(t *testing.T) {
	s := embedded.Start(t, nil)
	stream(t, embedded.JetStream(t, s), jetstream.StreamConfig{})
	plugintest.RunSink(t, plugintest.Sink{Kind: nats.Kind(), Config: "servers: " + s.ClientURL(), Env: sinktest.Env("bus")})
}

// TestDelivered: a message is a CloudEvent in binary mode, and the stream drops a repeated one.
func TestDelivered(t *testing.T) {
	s := embedded.Start(t, nil)
	kept := func(st jetstream.Stream) []*jetstream.RawStreamMsg { return kept(t, st) }
	st := stream(t, embedded.JetStream(t, s), jetstream.StreamConfig{})
	sink := open(t, "servers: "+s.ClientURL())
	all := sinktest.Events(t, "web", 100, 20)
	all[7].Redelivered, all[7].Subject = true, "a b\r\nce-x: é%"
	all[7].TraceParent = "00-0102030405060708090a0b0c0d0e0f10-1112131415161718-01"
	for range 2 {
		if errs := sink.Write(t.Context(), all); errs != nil {
			t.Fatal(errs)
		}
	}
	got := kept(st)
	if len(got) != len(all) {
		t.Fatalf("the stream has %d messages of %d events that were written twice", len(got), len(all))
	}
	for i, m := range got {
		if m.Subject != fmt.Sprintf("k8s.pods.default.web-%d", i) || string(m.Data) != string(all[i].Data) || m.Header.Get("Nats-Msg-Id") != all[i].ID {
			t.Errorf("message %d: %s %v", i, m.Subject, m.Header)
		}
	}
	want := map[string]string{
		"ce-specversion": "1.0", "ce-id": all[7].ID, "ce-source": "/clusters/test/sources/pods", "ce-type": "io.deltarouter.added",
		"ce-subject": "a%20b%0D%0Ace-x:%20%C3%A9%25", "ce-time": "1970-01-01T00:00:01Z", "ce-route": "r", "ce-k8suid": "uid-web-7",
		"ce-k8sresourceversion": "8", "ce-redelivered": "true", "content-type": "application/json", "Nats-Msg-Id": all[7].ID,
		"traceparent": all[7].TraceParent, "ce-traceparent": all[7].TraceParent,
	}
	for name, value := range want {
		if got := got[7].Header[name]; len(got) != 1 || got[0] != value {
			t.Errorf("%s is %q, want %q", name, got, value)
		}
	}
	if len(got[7].Header) != len(want) {
		t.Errorf("the headers are %v", got[7].Header)
	}
}

// TestKilled: while the server is down nothing is delivered, and each write dials once. When the
// server is back, each event arrives once.
func TestKilled(t *testing.T) {
	// Guarantee: nats-delivery
	store := t.TempDir()
	with := func(o *server.Options) { o.StoreDir = store }
	s := embedded.Start(t, with)
	stream(t, embedded.JetStream(t, s), jetstream.StreamConfig{})
	w := sinktest.NewWire(t, s.Addr().String())
	sink := open(t, fmt.Sprintf("{servers: %q, timeout: 20s}", url(w)))
	all := sinktest.Events(t, "web", 90, 20)
	if errs := sink.Write(t.Context(), all[:30]); errs != nil {
		t.Fatal(errs)
	}
	w.Cut("")
	embedded.Stop(s)
	before := w.Dials()
	for range 3 {
		errs := sink.Write(t.Context(), all[30:60])
		if v := sinktest.Verdicts(30, errs); v != strings.Repeat("u", 30) || !strings.Contains(errs[0].Error(), `nats "bus": nats://127.0.0.1:`) {
			t.Fatalf("got %s: %v", v, errs)
		}
	}
	if n := w.Dials() - before; n < 2 || n > 3 { // the first write may find the old connection
		t.Errorf("%d connections for three writes", n)
	}
	s = embedded.Start(t, with)
	w.Cut(s.Addr().String())
	if errs := sink.Write(t.Context(), all[30:]); errs != nil {
		t.Fatal(errs)
	}
	st, err := embedded.JetStream(t, s).Stream(t.Context(), "k8s")
	must.Succeed(t, err)
	if got := kept(t, st); len(got) != 90 {
		t.Errorf("%d messages of 90 events", len(got))
	}
}

// TestLostAcknowledgements: events without an acknowledgement are unavailable. The stream drops
// their repetition.
func TestLostAcknowledgements(t *testing.T) {
	// Guarantee: nats-delivery
	for name, test := range map[string]struct {
		timeout string
		lose    func(*sinktest.Wire, string, context.CancelFunc)
		want    string
	}{
		"no answer":         {"300ms", func(*sinktest.Wire, string, context.CancelFunc) {}, "no acknowledgement within 300ms"},
		"the context":       {"1m", func(_ *sinktest.Wire, _ string, cancel context.CancelFunc) { cancel() }, "context canceled"},
		"a lost connection": {"1m", func(w *sinktest.Wire, to string, _ context.CancelFunc) { w.Cut(to) }, "the connection was lost"},
	} {
		t.Run(name, func(t *testing.T) {
			s := embedded.Start(t, nil)
			st := stream(t, embedded.JetStream(t, s), jetstream.StreamConfig{})
			w := sinktest.NewWire(t, s.Addr().String())
			sink := open(t, fmt.Sprintf("{servers: %q, timeout: %s}", url(w), test.timeout))
			all := sinktest.Events(t, "web", 20, 20)
			if errs := sink.Write(t.Context(), all[:1]); errs != nil {
				t.Fatal(errs)
			}
			w.Mute()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			arrived := make(chan struct{})
			go func() {
				defer close(arrived)
				sinktest.Until(t, "the arrival of all messages", func() bool { info, err := st.Info(t.Context()); return err == nil && info.State.Msgs == 20 })
				test.lose(w, s.Addr().String(), cancel)
			}()
			errs := sink.Write(ctx, all)
			<-arrived
			if v := sinktest.Verdicts(20, errs); v != strings.Repeat("u", 20) || !strings.Contains(errs[19].Error(), test.want) {
				t.Fatalf("got %s: %v", v, errs)
			}
			w.Cut(s.Addr().String())
			errs = sink.Write(t.Context(), all)
			if errs != nil { // the old connection may not be closed yet
				errs = sink.Write(t.Context(), all)
			}
			if got := kept(t, st); errs != nil || len(got) != 20 {
				t.Errorf("%d messages of 20 events: %v", len(got), errs)
			}
		})
	}
}

// TestFull: a full stream is not a fault of the events. It gets the rest when it has space.
func TestFull(t *testing.T) {
	s := embedded.Start(t, nil)
	st := stream(t, embedded.JetStream(t, s), jetstream.StreamConfig{MaxMsgs: 3, Discard: jetstream.DiscardNew})
	sink, all := open(t, "servers: "+s.ClientURL()), sinktest.Events(t, "web", 5, 20)
	errs := sink.Write(t.Context(), all)
	if v := sinktest.Verdicts(5, errs); v != "ddduu" || !strings.Contains(errs[4].Error(), "maximum messages exceeded") {
		t.Fatalf("got %s: %v", v, errs)
	}
	must.Succeed(t, st.Purge(t.Context()))
	if errs := sink.Write(t.Context(), all[3:]); errs != nil || len(kept(t, st)) != 2 {
		t.Errorf("%d messages: %v", len(kept(t, st)), errs)
	}
}

// TestOrder: an event is not sent after a failed event of the same key, although the server would
// accept it. Other keys continue, and a rejected event delays no other.
func TestOrder(t *testing.T) {
	// Guarantee: key-order-in-batch, broker-key-order
	s := embedded.Start(t, nil)
	st := stream(t, embedded.JetStream(t, s), jetstream.StreamConfig{MaxMsgsPerSubject: 1, Discard: jetstream.DiscardNew, DiscardNewPerSubject: true, MaxMsgSize: 10_000})
	all := sinktest.Events(t, "web", 5, 20)
	of := func(key, id string, object int) event.Event {
		e := all[object]
		e.Key, e.ID = key, id
		return e
	}
	large := of("a", "large", 4)
	large.Data = []byte(`"` + strings.Repeat("x", 20_000) + `"`)
	// The subject of a2 is full. a3 has another subject, which is not.
	batch := []event.Event{of("a", "a1", 0), large, of("a", "a2", 0), of("b", "b1", 1), of("a", "a3", 2), of("c", "c1", 3)}
	sink := open(t, "servers: "+s.ClientURL())
	errs := sink.Write(t.Context(), batch)
	if v := sinktest.Verdicts(6, errs); v != "drudud" {
		t.Fatalf("got %s: %v", v, errs)
	}
	has := func() (got []string) {
		for _, m := range kept(t, st) {
			got = append(got, m.Header.Get("Nats-Msg-Id"))
		}
		return got
	}
	sinktest.Compare(t, has(), []string{"a1", "b1", "c1"})
	must.Succeed(t, st.Purge(t.Context()))
	if errs := sink.Write(t.Context(), []event.Event{batch[2], batch[4]}); errs != nil {
		t.Error(errs)
	}
	if got := strings.Join(has(), " "); got != "a2 a3" {
		t.Errorf("the stream has %s", got)
	}
}

// TestOnce: a write publishes each event once, regardless of the result, because a later retry of
// the client could overtake another event.
func TestOnce(t *testing.T) {
	// Guarantee: broker-key-order
	s := embedded.Start(t, nil)
	sinktest.Complains(t, open(t, "servers: "+s.ClientURL()), sinktest.Events(t, "web", 3, 20), "no stream has the subject")
	published := func() int64 {
		connections, err := s.Connz(&server.ConnzOptions{})
		if err != nil || len(connections.Conns) != 1 {
			t.Fatalf("%v: %v", connections, err)
		}
		return connections.Conns[0].InMsgs
	}
	sinktest.Until(t, "that the server has counted", func() bool { return published() >= 3 })
	if n := published(); n != 3 {
		t.Errorf("%d messages of 3 events", n)
	}
}

// TestKeyInOrder: events of one key are in the stream in their order.
func TestKeyInOrder(t *testing.T) {
	// Guarantee: broker-key-order
	s := embedded.Start(t, nil)
	st := stream(t, embedded.JetStream(t, s), jetstream.StreamConfig{})
	all := sinktest.Keyed(t, 60, "abc")
	if errs := open(t, "servers: "+s.ClientURL()).Write(t.Context(), all); errs != nil {
		t.Fatal(errs)
	}
	for i, m := range kept(t, st) {
		if m.Header.Get("Nats-Msg-Id") != all[i].ID {
			t.Fatalf("message %d is another", i)
		}
	}
}

// TestTooLarge: messages that the server never accepts are rejected, without the loss of a
// connection.
func TestTooLarge(t *testing.T) {
	// Guarantee: refused-alone
	s := embedded.Start(t, func(o *server.Options) { o.MaxPayload = 8 << 10 })
	st := stream(t, embedded.JetStream(t, s), jetstream.StreamConfig{})
	all := sinktest.Events(t, "web", 3, 20)
	all[1].Data = []byte(`"` + strings.Repeat("s3cret", 2<<10) + `"`)
	errs := open(t, "servers: "+s.ClientURL()).Write(t.Context(), all)
	if v := sinktest.Verdicts(3, errs); v != "drd" || len(kept(t, st)) != 2 || !strings.Contains(errs[1].Error(), "max_payload of the server (8192 bytes)") ||
		!strings.Contains(errs[1].Error(), "give the route an emit") || strings.Contains(errs[1].Error(), "s3cret") {
		t.Errorf("got %s: %v", v, errs)
	}
	// A stream accepts 64 KiB of headers, independent of the maximum payload.
	s = embedded.Start(t, nil)
	st = stream(t, embedded.JetStream(t, s), jetstream.StreamConfig{})
	all[1].Subject = strings.Repeat("s3cret", 12<<10)
	errs = open(t, "servers: "+s.ClientURL()).Write(t.Context(), all)
	if v := sinktest.Verdicts(3, errs); v != "drd" || len(kept(t, st)) != 2 || strings.Contains(errs[1].Error(), "s3cret") {
		t.Errorf("got %s: %.300v", v, errs)
	}
}

// TestStream: a missing stream makes NATS unavailable. The sink creates it only if configured, and
// never changes it.
func TestStream(t *testing.T) {
	s := embedded.Start(t, nil)
	js, all := embedded.JetStream(t, s), sinktest.Events(t, "web", 4, 20)
	sink := open(t, "servers: "+s.ClientURL())
	errs := sink.Write(t.Context(), all)
	if v := sinktest.Verdicts(4, errs); v != "uuuu" || !strings.Contains(errs[0].Error(), "no stream has the subject") {
		t.Fatalf("got %s: %v", v, errs)
	}
	sinktest.Complains(t, open(t, fmt.Sprintf("{servers: %q, stream: {name: k8s}}", s.ClientURL())), all, "no stream has the subject")
	if _, err := js.Stream(t.Context(), "k8s"); !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Fatalf("there is a stream: %v", err)
	}
	made := open(t, fmt.Sprintf(
		"{servers: %q, subject: 'a.{cluster}.{source}.{op}', stream: {name: k8s, create: true, storage: memory, maxAge: 1h, maxBytes: 1Mi, duplicates: 5m}}", s.ClientURL()))
	for range 2 {
		if errs := made.Write(t.Context(), all); errs != nil {
			t.Fatal(errs)
		}
		st, err := js.Stream(t.Context(), "k8s")
		must.Succeed(t, err)
		c := st.CachedInfo().Config
		if c.Subjects[0] != "a.*.*.*" || c.Storage != jetstream.MemoryStorage || c.MaxAge != time.Hour || c.MaxBytes != 1<<20 || c.Duplicates != 5*time.Minute || c.Replicas != 1 {
			t.Errorf("it is %+v", c)
		}
		if got := kept(t, st); len(got) != 4 {
			t.Errorf("%d messages of 4 events", len(got))
		}
		must.Succeed(t, js.DeleteStream(t.Context(), "k8s"))
		// the next write creates it again
		if errs := made.Write(t.Context(), all); sinktest.Verdicts(4, errs) != "uuuu" {
			t.Fatal(errs)
		}
	}
	// A stream of another owner with other settings: they do not change.
	stream(t, js, jetstream.StreamConfig{Subjects: []string{"a.>"}, MaxMsgs: 100})
	if errs := open(t, fmt.Sprintf("{servers: %q, subject: 'a.{name}', stream: {name: k8s, create: true}}", s.ClientURL())).Write(t.Context(), all); errs != nil {
		t.Error(errs)
	}
	st, err := js.Stream(t.Context(), "k8s")
	if err != nil || st.CachedInfo().Config.MaxMsgs != 100 || len(kept(t, st)) != 4 {
		t.Errorf("%v: %+v", err, st.CachedInfo())
	}
	// A stream other than the configured one has the subject. An operator can correct this, so no
	// event is rejected.
	errs = open(t, fmt.Sprintf("{servers: %q, subject: 'a.{name}', stream: {name: other}}", s.ClientURL())).Write(t.Context(), sinktest.Events(t, "x", 1, 20))
	if v := sinktest.Verdicts(1, errs); v != "u" {
		t.Errorf("got %s: %v", v, errs)
	}
}

// TestRefused: without a server each event is unavailable. A context that is done ends a hung
// connection attempt.
func TestRefused(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // accepts connections and sends nothing
	must.Succeed(t, err)
	defer l.Close()
	sink := open(t, fmt.Sprintf("{servers: 'nats://%s', timeout: 5m}", l.Addr()))
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		conn, err := l.Accept()
		cancel()
		if err == nil {
			t.Cleanup(func() { _ = conn.Close() })
		}
	}()
	if errs := sink.Write(ctx, sinktest.Events(t, "web", 2, 20)); sinktest.Verdicts(2, errs) != "uu" {
		t.Errorf("got %v", errs)
	}
	_ = l.Close()
	errs := sink.Write(t.Context(), sinktest.Events(t, "web", 2, 20))
	if sinktest.Verdicts(2, errs) != "uu" || plugins.RetryAfter(errs[0]) != 0 || !strings.Contains(errs[0].Error(), "refused") {
		t.Errorf("got %v", errs)
	}
}
