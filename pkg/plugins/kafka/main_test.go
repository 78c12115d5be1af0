package kafka_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/kafka"
	"github.com/deltarouter/deltarouter/test/leaks"
	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/sinktest"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// fake starts a fake of Kafka with the topic k8s of three partitions.
func fake(t *testing.T, options ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1), kfake.SeedTopics(3, "k8s")}, options...)...)
	must.Succeed(t, err)
	t.Cleanup(c.Close)
	return c
}

// behind makes the broker of a cluster reachable only through a wire.
func behind(w *sinktest.Wire) kfake.Opt {
	return kfake.ListenFn(func(network, _ string) (net.Listener, error) {
		l, err := net.Listen(network, "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		return w.Hide(l), nil
	})
}

func sinkYAML(address, more string) string {
	return fmt.Sprintf("{brokers: %q, topic: k8s%s}", address, more)
}

func open(t *testing.T, c *kfake.Cluster, more string) plugins.Sink {
	t.Helper()
	return sinktest.Open(t, kafka.Kind(), sinkYAML(c.ListenAddrs()[0], more))
}

// consume reads all records, of which there must be n. The records of a partition are in order.
func consume(t *testing.T, c *kfake.Cluster, n int, options ...kgo.Opt) []*kgo.Record {
	t.Helper()
	all := consumeAll(t, c, options...)
	if len(all) != n {
		t.Fatalf("the topic has %d records, want %d", len(all), n)
	}
	return all
}

func consumeAll(t *testing.T, c *kfake.Cluster, options ...kgo.Opt) []*kgo.Record {
	t.Helper()
	client, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(c.ListenAddrs()...), kgo.ConsumeTopics("k8s"), kgo.DisableClientMetrics()}, options...)...)
	must.Succeed(t, err)
	defer client.Close()
	high := 0
	for _, p := range c.PartitionInfos("k8s") {
		high += int(p.HighWatermark)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var all []*kgo.Record
	for len(all) < high && ctx.Err() == nil {
		all = append(all, client.PollFetches(ctx).Records()...)
	}
	if len(all) != high {
		t.Fatalf("%d records were read, the topic has %d", len(all), high)
	}
	return all
}

func header(r *kgo.Record, name string) string {
	for _, h := range r.Headers {
		if h.Key == name {
			return string(h.Value)
		}
	}
	return ""
}

// ids returns the event ids of records.
func ids(records []*kgo.Record) []string {
	all := make([]string, len(records))
	for i, r := range records {
		all[i] = header(r, "ce_id")
	}
	return all
}

// byKey returns the event ids by key, in order.
func byKey(records []*kgo.Record) map[string][]string {
	all := map[string][]string{}
	for _, r := range records {
		all[string(r.Key)] = append(all[string(r.Key)], header(r, "ce_id"))
	}
	return all
}

// noise returns the JSON of an incompressible text.
func noise(n int) []byte {
	b := make([]byte, n)
	random := rand.New(rand.NewPCG(1, uint64(n)))
	for i := range b {
		b[i] = byte(random.Uint32())
	}
	return []byte(`"` + base64.StdEncoding.EncodeToString(b) + `"`)
}
