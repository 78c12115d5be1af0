package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/metrics"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/kafka"
	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake starts what speaks Kafka's protocol and is none.
func fake(t *testing.T, options ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1), kfake.SeedTopics(3, "k8s")}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func env() plugins.Env {
	return plugins.Env{Name: "bus", Log: slog.New(slog.DiscardHandler), Metrics: metrics.New()}
}

func open(t *testing.T, c *kfake.Cluster, more string) plugins.Sink {
	t.Helper()
	config := fmt.Sprintf("{brokers: %q, topic: k8s%s}", c.ListenAddrs()[0], more)
	f := kafka.Factory()
	if problems := f.Check(plugintest.Node(t, config)); problems != nil {
		t.Fatal(problems)
	}
	sink, err := f.Open(t.Context(), plugintest.Node(t, config), env())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sink.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return sink
}

func events(t *testing.T, n int) []event.Event {
	t.Helper()
	all := make([]event.Event, n)
	for i := range all {
		d := &event.Delta{Source: "pods", Op: event.Added, New: plugintest.Pod(t, fmt.Sprintf("web-%d", i), i+1, 20), Seen: time.Unix(1, 0)}
		all[i] = event.New(d, "r", 0, event.Payload(d))
	}
	return all
}

// consume reads n records, and looks whether there are more.
func consume(t *testing.T, c *kfake.Cluster, n int) []*kgo.Record {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.ConsumeTopics("k8s"))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var all []*kgo.Record
	for len(all) < n && ctx.Err() == nil {
		all = append(all, client.PollFetches(ctx).Records()...)
	}
	high := int64(0)
	for p := range int32(3) {
		high += c.PartitionInfo("k8s", p).HighWatermark
	}
	if len(all) != n || high != int64(n) {
		t.Fatalf("%d records were read, the topic has %d, want %d", len(all), high, n)
	}
	return all
}

func verdicts(n int, errs []error) string {
	if errs == nil {
		return strings.Repeat("d", n)
	}
	var s strings.Builder
	for _, err := range errs {
		switch {
		case err == nil:
			s.WriteByte('d')
		case plugins.IsRejected(err):
			s.WriteByte('r')
		default:
			s.WriteByte('u')
		}
	}
	return s.String()
}

func TestContract(t *testing.T) {
	c := fake(t)
	plugintest.RunSink(t, plugintest.Sink{Factory: kafka.Factory(), Config: fmt.Sprintf("{brokers: %q, topic: k8s}", c.ListenAddrs()[0]), Env: env()})
}

// TestRecord: a record is a CloudEvent in binary mode with the route's key.
func TestRecord(t *testing.T) {
	c, all := fake(t), events(t, 2)
	all[1].Key = "team-a"
	if errs := open(t, c, "").Write(t.Context(), all); errs != nil {
		t.Fatal(errs)
	}
	for _, r := range consume(t, c, 2) {
		e, key := all[0], "pods/default/web-0"
		if string(r.Key) == "team-a" {
			e, key = all[1], "team-a"
		}
		got := map[string]string{}
		for _, h := range r.Headers {
			got[h.Key] = string(h.Value)
		}
		if string(r.Key) != key || string(r.Value) != string(e.Data) || got["ce_id"] != e.ID || got["ce_specversion"] != "1.0" ||
			got["ce_subject"] != e.Subject || got["content-type"] != "application/json" || len(got) != 10 {
			t.Errorf("%s: %v", r.Key, got)
		}
	}
}

// TestOrder: under errors that the client tries again, each event is in its partition once and in order.
func TestOrder(t *testing.T) {
	c, all := fake(t), events(t, 60)
	for i := range all {
		all[i].Key = fmt.Sprint(i % 5)
	}
	fails := 4
	c.ControlKey(int16(kmsg.Produce), func(request kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if fails--; fails < 0 || fails%2 == 0 {
			return nil, nil, false
		}
		response := request.ResponseKind().(*kmsg.ProduceResponse)
		for _, topic := range request.(*kmsg.ProduceRequest).Topics {
			rt := kmsg.NewProduceResponseTopic()
			rt.Topic, rt.TopicID = topic.Topic, topic.TopicID
			for _, p := range topic.Partitions {
				rp := kmsg.NewProduceResponseTopicPartition()
				rp.Partition, rp.ErrorCode = p.Partition, kerr.NotLeaderForPartition.Code
				rt.Partitions = append(rt.Partitions, rp)
			}
			response.Topics = append(response.Topics, rt)
		}
		return response, nil, true
	})
	if errs := open(t, c, "").Write(t.Context(), all); errs != nil {
		t.Fatal(errs)
	}
	got, want := map[string]string{}, map[string]string{}
	for _, e := range all {
		want[e.Key] += e.Subject + " "
	}
	for _, r := range consume(t, c, 60) {
		for _, h := range r.Headers {
			if h.Key == "ce_subject" {
				got[string(r.Key)] += string(h.Value) + " "
			}
		}
	}
	for key := range want {
		if got[key] != want[key] {
			t.Errorf("key %s: got %s, want %s", key, got[key], want[key])
		}
	}
	if fails >= 0 {
		t.Errorf("%d errors were not met", fails)
	}
}

// TestTooLarge: what is too large is rejected, and takes nothing with it.
func TestTooLarge(t *testing.T) {
	c, all := fake(t), events(t, 3)
	all[1].Data = []byte(`"` + strings.Repeat("s3cret", 1000) + `"`)
	errs := open(t, c, ", maxBytes: 4Ki").Write(t.Context(), all)
	if v := verdicts(3, errs); v != "drd" || strings.Contains(errs[1].Error(), "s3cret") {
		t.Errorf("got %s: %v", v, errs)
	}
	consume(t, c, 2)
}

// TestAway: while the broker is away events are unavailable; when it is back each is there once.
func TestAway(t *testing.T) {
	c, all := fake(t), events(t, 20)
	sink := open(t, c, ", timeout: 300ms")
	var down atomic.Bool
	down.Store(true)
	c.Control(func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		return nil, errors.New("down"), down.Load() // the connection is closed
	})
	errs := sink.Write(t.Context(), all)
	if v := verdicts(20, errs); v != strings.Repeat("u", 20) || !strings.Contains(errs[0].Error(), `kafka "bus": topic k8s at 127.0.0.1:`) {
		t.Fatalf("got %s: %v", v, errs)
	}
	down.Store(false)
	for try := 0; errs != nil && try < 50; try++ {
		errs = sink.Write(t.Context(), all)
	}
	if errs != nil {
		t.Fatal(errs)
	}
	consume(t, c, 20)
}
