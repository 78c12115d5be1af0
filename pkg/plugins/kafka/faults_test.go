package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/kafka"
	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/sinktest"
)

// TestOutage: an unavailable broker stops only the routes of its sink. When it is back, it gets
// their backlog once.
func TestOutage(t *testing.T) {
	// Guarantee: broker-down
	w := sinktest.NewWire(t, "")
	c := fake(t, behind(w))
	at := c.ListenAddrs()[0]
	var broker string
	o := sinktest.Outage{
		Sink: sinktest.Open(t, kafka.Kind(), sinkYAML(at, ", timeout: 500ms, maxBytes: 64Ki")), Why: `kafka "bus": topic k8s at ` + at, Large: 200_000,
		Before: func() { broker = w.Target(); w.Cut("") },
		After:  func() { w.Cut(broker) },
	}
	want := o.Run(t, 90)
	var got []string
	for _, r := range consumeAll(t, c) {
		got = append(got, header(r, "ce_route")+" "+header(r, "ce_subject"))
	}
	// Only events that were in flight when the connections were cut may arrive twice.
	twice := sinktest.Twice(got)
	if len(twice) > 16*2 {
		t.Errorf("%d events are there twice: %v", len(twice), twice)
	}
	sinktest.Compare(t, got, append(want, twice...))
}

// TestRestart: a broker that is killed while batches are in flight, and restarted with its disk,
// has each event once and in order. The client sends unacknowledged batches again, and the broker
// recognises the batches that it has.
func TestRestart(t *testing.T) {
	// Guarantee: kafka-delivery
	w, dir := sinktest.NewWire(t, ""), t.TempDir()
	start := func() *kfake.Cluster { return fake(t, behind(w), kfake.DataDir(dir), kfake.SyncWrites()) }
	c, all := start(), sinktest.Keyed(t, 200, "abcdefgh")
	sink := open(t, c, ", timeout: 60s")
	killed, down := make(chan struct{}), make(chan struct{})
	var requests atomic.Int32
	// The one before the last is appended, but not acknowledged.
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotEnoughReplicasAfterAppend, When: func(kmsg.Request) bool { return requests.Load() == 9 }})
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		n := requests.Add(1)
		if n == 10 {
			close(killed)
		}
		if n >= 10 {
			<-down // without a response, so that the client does not connect to the dying broker
		}
		return nil, errors.New("dead"), n >= 10
	})
	restarted := make(chan *kfake.Cluster, 1)
	go func() {
		<-killed
		w.Hold() // a connection that ended before its first response would fail the write for good
		close(down)
		c.Close()
		restarted <- start()
	}()
	errs := sink.Write(t.Context(), all)
	c = <-restarted
	if errs != nil {
		t.Fatalf("%s: %v", sinktest.Verdicts(200, errs), errs)
	}
	checkOrder(t, c, all)
}

// TestUnknownOutcome: a write without an acknowledgement may have arrived. It is repeated, and its
// events are there twice with the same ce_id. There are no other duplicates.
func TestUnknownOutcome(t *testing.T) {
	// Guarantee: kafka-delivery
	w := sinktest.NewWire(t, "")
	c, all := fake(t, behind(w)), sinktest.Keyed(t, 3, "a")
	sink := open(t, c, ", timeout: 60s")
	if errs := sink.Write(t.Context(), all[:1]); errs != nil {
		t.Fatal(errs)
	}
	w.Mute()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		sinktest.Until(t, "the arrival of the event", func() bool {
			n := 0
			for _, p := range c.PartitionInfos("k8s") {
				n += int(p.HighWatermark)
			}
			return n == 2
		})
		cancel()
	}()
	errs := sink.Write(ctx, all[1:])
	if v := sinktest.Verdicts(2, errs); v != "uu" || !strings.Contains(errs[0].Error(), "context canceled") {
		t.Fatalf("got %s: %v", v, errs)
	}
	w.Cut(w.Target())
	sinktest.Insist(t, sink, all[1:])
	if got, want := byKey(consume(t, c, 4))["a"], sinktest.IDs([]event.Event{all[0], all[1], all[1], all[2]}); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestLeaders: while batches are in flight, partitions move between brokers. Each event is there
// once and in order.
func TestLeaders(t *testing.T) {
	// Guarantee: kafka-delivery, broker-key-order
	c, all := fake(t, kfake.NumBrokers(3)), sinktest.Keyed(t, 300, "abcdefgh")
	sink := open(t, c, ", timeout: 60s")
	var moves atomic.Int32
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if moves.Add(1)%3 == 0 {
			go c.ShufflePartitionLeaders() // between this request and a later one
		}
		return nil, nil, false
	})
	if errs := sink.Write(t.Context(), all); errs != nil {
		t.Fatalf("%s: %v", sinktest.Verdicts(300, errs), errs)
	}
	if moves.Load() < 30 {
		t.Errorf("%d requests", moves.Load())
	}
	checkOrder(t, c, all)
}

// TestTooFewReplicas: with too few in-sync replicas the sink is unavailable. When they are back,
// each event arrives once.
func TestTooFewReplicas(t *testing.T) {
	// Guarantee: kafka-delivery
	c, all := fake(t), sinktest.Keyed(t, 30, "abcde")
	sink := open(t, c, ", timeout: 400ms")
	fault := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotEnoughReplicas, Count: -1})
	for range 2 {
		errs := sink.Write(t.Context(), all)
		if v := sinktest.Verdicts(30, errs); v != strings.Repeat("u", 30) || !strings.Contains(errs[0].Error(), "no acknowledgement within 400ms") {
			t.Fatalf("got %s: %v", v, errs)
		}
	}
	fault.Remove()
	sinktest.Insist(t, sink, all)
	checkOrder(t, c, all)
}

// TestTopicComesAndGoes: a missing topic makes the sink unavailable, and is not created. The sink
// uses a topic that is created, or created again.
func TestTopicComesAndGoes(t *testing.T) {
	c, all := fake(t, kfake.AllowAutoTopicCreation()), sinktest.Events(t, "web", 10, 20)
	sink := open(t, c, ", timeout: 5s")
	for range 2 {
		sinktest.Insist(t, sink, all)
		consume(t, c, 10)
		must.Succeed(t, c.DeleteTopic("k8s"))
		for range 2 {
			errs := sink.Write(t.Context(), all)
			if v := sinktest.Verdicts(10, errs); v != strings.Repeat("u", 10) || !strings.Contains(errs[0].Error(), "UNKNOWN_TOPIC") {
				t.Fatalf("got %s: %v", v, errs)
			}
		}
		if c.TopicInfo("k8s") != nil {
			t.Fatal("the topic was made")
		}
		must.Succeed(t, c.CreateTopic("k8s", 3, nil))
	}
	sinktest.Insist(t, sink, all)
	consume(t, c, 10)
}

// TestRefused: without a broker each event is unavailable, and the error has the reason. A context
// that is done ends the wait.
func TestRefused(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	at := l.Addr().String()
	_ = l.Close()
	all := sinktest.Events(t, "web", 2, 20)
	sinktest.Complains(t, sinktest.Open(t, kafka.Kind(), sinkYAML(at, ", timeout: 300ms")), all,
		`kafka "bus": topic k8s at `+at+": no acknowledgement within 300ms; the last error was: ", "refused")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	errs := sinktest.Open(t, kafka.Kind(), sinkYAML(at, ", timeout: 5m")).Write(ctx, all)
	if sinktest.Verdicts(2, errs) != "uu" || !strings.Contains(errs[0].Error(), "context canceled") {
		t.Errorf("got %v", errs)
	}
}

// TestSilence: an unresponsive broker costs one timeout, and is used as soon as it responds.
func TestSilence(t *testing.T) {
	for name, tls := range map[string]string{"plain": "", "TLS": ", tls: {}"} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			must.Succeed(t, err)
			var accepted atomic.Int32
			done := make(chan struct{})
			go func() {
				defer close(done)
				for {
					conn, err := l.Accept()
					if err != nil {
						return
					}
					accepted.Add(1)
					defer conn.Close()
				}
			}()
			sink := sinktest.Open(t, kafka.Kind(), sinkYAML(l.Addr().String(), ", timeout: 300ms"+tls))
			writes := int32(0)
			sinktest.Until(t, "a second connection", func() bool {
				writes++
				errs := sink.Write(t.Context(), sinktest.Events(t, "web", 2, 20))
				if v := sinktest.Verdicts(2, errs); v != "uu" || !strings.Contains(errs[0].Error(), "no acknowledgement within 300ms") {
					t.Errorf("got %s: %v", v, errs)
				}
				return accepted.Load() > 1
			})
			_ = l.Close()
			<-done
		})
	}
}

// TestProbe: a probe requests the topic, creates none and produces nothing. Its error has the
// reason.
func TestProbe(t *testing.T) {
	c := fake(t, kfake.AllowAutoTopicCreation())
	p := spy(c)
	at := c.ListenAddrs()[0]
	for _, test := range []struct{ config, want string }{
		{sinkYAML(at, ""), ""},
		{fmt.Sprintf("{brokers: %q, topic: other}", at), "topic other at " + at + ": UNKNOWN_TOPIC_OR_PARTITION"},
		{sinkYAML(at, ", tls: {}, timeout: 500ms"), at + ": "},
		{sinkYAML(at, ", tls: {ca: {file: /none}}"), "tls.ca: "},
		{sinkYAML("127.0.0.1:1", ""), "refused"},
	} {
		err := kafka.Kind().(plugins.Prober).Probe(t.Context(), plugintest.Node(t, test.config))
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %q", test.config, err, test.want)
		}
	}
	fault := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: "k8s", Err: kerr.TopicAuthorizationFailed})
	if err := kafka.Kind().(plugins.Prober).Probe(t.Context(), plugintest.Node(t, sinkYAML(at, ""))); err == nil || !strings.Contains(err.Error(), "TOPIC_AUTHORIZATION_FAILED") || fault.Hits() != 1 {
		t.Errorf("got %v", err)
	}
	if p.requests != 0 || c.TopicInfo("other") != nil {
		t.Errorf("%d requests to produce, the topic is %v", p.requests, c.TopicInfo("other"))
	}
	consume(t, c, 0, kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
}
