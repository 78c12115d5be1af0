package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	collector "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	"google.golang.org/grpc"

	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/natstest/embedded"
	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
	"github.com/deltarouter/deltarouter/test/sinktest"
)

// broker is the server of a sink: its address, and the subjects of its events.
type broker struct {
	wire *sinktest.Wire
	at   string
	has  func() []string
}

func natsBroker(t *testing.T) *broker {
	t.Helper()
	s := embedded.Start(t, nil)
	js := embedded.JetStream(t, s)
	return &broker{sinktest.NewWire(t, ""), s.Addr().String(), func() (all []string) {
		stream, err := js.Stream(t.Context(), "k8s")
		if err != nil {
			return nil // the router creates it
		}
		for n := uint64(1); n <= stream.CachedInfo().State.LastSeq; n++ {
			if m, err := stream.GetMsg(t.Context(), n); err == nil {
				all = append(all, m.Header.Get("ce-subject"))
			}
		}
		return all
	}}
}

func kafkaBroker(t *testing.T) *broker {
	t.Helper()
	b := &broker{wire: sinktest.NewWire(t, "")}
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(3, "k8s"), kfake.ListenFn(func(network, _ string) (net.Listener, error) {
		l, err := net.Listen(network, "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		b.at = l.Addr().String()
		return b.wire.Hide(l), nil
	}))
	must.Succeed(t, err)
	t.Cleanup(c.Close)
	b.wire.Cut("") // it is unavailable
	b.has = func() (all []string) {
		high := 0
		for _, p := range c.PartitionInfos("k8s") {
			high += int(p.HighWatermark)
		}
		client, err := kgo.NewClient(kgo.SeedBrokers(b.at), kgo.ConsumeTopics("k8s"))
		must.Succeed(t, err)
		defer client.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for len(all) < high && ctx.Err() == nil {
			for _, r := range client.PollFetches(ctx).Records() {
				for _, h := range r.Headers {
					if h.Key == "ce_subject" {
						all = append(all, string(h.Value))
					}
				}
			}
		}
		return all
	}
	return b
}

// otlpReceiver collects the subjects of received records.
type otlpReceiver struct {
	collector.UnimplementedLogsServiceServer
	mu  sync.Mutex
	all []string
}

// Export implements the service of gRPC.
func (r *otlpReceiver) Export(_ context.Context, request *collector.ExportLogsServiceRequest) (*collector.ExportLogsServiceResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, of := range request.GetResourceLogs() {
		for _, scope := range of.GetScopeLogs() {
			for _, record := range scope.GetLogRecords() {
				for _, a := range record.GetAttributes() {
					if a.GetKey() == "cloudevents.event_subject" {
						r.all = append(r.all, a.GetValue().GetStringValue())
					}
				}
			}
		}
	}
	return &collector.ExportLogsServiceResponse{}, nil
}

func (r *otlpReceiver) has() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.all...)
}

func otlpBroker(t *testing.T) *broker {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	r, s := &otlpReceiver{}, grpc.NewServer()
	collector.RegisterLogsServiceServer(s, r)
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.Serve(l) })
	t.Cleanup(func() { s.Stop(); serving.Wait() })
	return &broker{sinktest.NewWire(t, ""), l.Addr().String(), r.has}
}

// TestBrokersDown makes NATS, Kafka and a receiver of OTLP unavailable. Each must stall its own
// route only, and /readyz must name it; standard output must have everything. One after the other
// becomes available and must get each event once, while the others wait.
func TestBrokersDown(t *testing.T) {
	// Guarantee: broker-down
	t.Parallel()
	s, ns := sandboxtest.StartNamespace(t)
	names := []string{"nats", "kafka", "otlp"}
	brokers := map[string]*broker{"nats": natsBroker(t), "kafka": kafkaBroker(t), "otlp": otlpBroker(t)}
	config := fmt.Sprintf(`
sources:
  maps: {resource: v1/configmaps, namespaces: %s}
sinks:
  out: {stdout: {}}
  nats: {nats: {servers: "nats://%s", timeout: 5s, stream: {name: k8s, create: true}}}
  kafka: {kafka: {brokers: %q, topic: k8s, timeout: 500ms}}
  otlp: {otlp: {endpoint: "http://%s", timeout: 5s}}
routes:
  - {name: out, from: maps, to: out}
`, ns, brokers["nats"].wire.Addr(), brokers["kafka"].wire.Addr(), brokers["otlp"].wire.Addr())
	for _, name := range names {
		config += fmt.Sprintf("  - {name: %s, from: maps, ops: added, to: %[1]s, batch: {size: 8, wait: 10ms}, retry: {backoff: 10ms, max: 200ms}}\n", name)
	}
	r := routertest.Start(t, s.Kubeconfig(), config)
	r.Ready(t)
	maps := routertest.Use(t, s, routertest.ConfigMaps, ns)
	const n = 40
	var want, subjects []string
	for i := range n {
		name := fmt.Sprintf("m%d", i)
		maps.Make(routertest.ConfigMap(name, "1"))
		want, subjects = append(want, "out added "+ns+"/"+name), append(subjects, ns+"/"+name)
	}
	r.Expect(t, want...)
	for i, name := range names {
		away := names[i:]
		routertest.Poll(t, fmt.Sprintf("/readyz to name %v and no other sink, and to be ready all the same", away), func() bool {
			code, said := r.Get(t, "/readyz")
			named := strings.Count(said, "sinks/")
			for _, name := range away {
				if !strings.Contains(said, "sinks/"+name) {
					return false
				}
			}
			return code == http.StatusOK && named == len(away)
		})
		b := brokers[name]
		b.wire.Cut(b.at)
		events := func(result string) float64 {
			return r.Metric(t, fmt.Sprintf(`deltarouter_route_events_total{result=%q,route=%q,sink=%[2]q}`, result, name))
		}
		routertest.Poll(t, name+" to have everything", func() bool { return events("delivered") == n })
		sinktest.Compare(t, b.has(), subjects)
		if events("rejected") != 0 || events("retried") == 0 {
			t.Errorf("%s: %v events were rejected, %v tried again", name, events("rejected"), events("retried"))
		}
	}
	routertest.Poll(t, "/readyz to name none", func() bool { _, said := r.Get(t, "/readyz"); return !strings.Contains(said, "sinks/") })
	for _, b := range brokers {
		sinktest.Compare(t, b.has(), subjects)
	}
}
