package kafka_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/kafka"
	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
	"github.com/deltarouter/deltarouter/test/sinktest"
)

func TestContract(t *testing.T) {
	c := fake(t)
	plugintest.RunSink(t, plugintest.Sink{Kind: kafka.Kind(), Config: sinkYAML(c.ListenAddrs()[0], ""), Env: sinktest.Env("bus")})
}

// TestRecord: a record is a CloudEvent in binary mode by the Kafka binding. Its key is that of the
// route or of the object.
func TestRecord(t *testing.T) {
	c, all := fake(t), sinktest.Events(t, "web", 2, 20)
	all[1].Key, all[1].Redelivered, all[1].Subject = "team-a", true, "é a%"
	all[1].TraceParent = "00-0102030405060708090a0b0c0d0e0f10-1112131415161718-01"
	if errs := open(t, c, "").Write(t.Context(), all); errs != nil {
		t.Fatal(errs)
	}
	want := map[string]map[string]string{}
	for key, e := range map[string]event.Event{"pods/default/web-0": all[0], "team-a": all[1]} {
		want[key] = map[string]string{
			"ce_specversion": "1.0", "ce_id": e.ID, "ce_source": "/clusters/test/sources/pods", "ce_type": "io.deltarouter.added", "ce_subject": e.Subject,
			"ce_time": "1970-01-01T00:00:01Z", "ce_route": "r", "ce_k8suid": e.K8sUID, "ce_k8sresourceversion": e.K8sResourceVersion,
			"content-type": "application/json",
		}
	}
	want["team-a"]["ce_redelivered"] = "true"
	want["team-a"]["ce_traceparent"], want["team-a"]["traceparent"] = all[1].TraceParent, all[1].TraceParent
	for _, r := range consume(t, c, 2) {
		got := map[string]string{}
		for _, h := range r.Headers {
			got[h.Key] = string(h.Value)
		}
		if !maps.Equal(got, want[string(r.Key)]) || len(r.Headers) != len(got) {
			t.Errorf("%s: the headers are %v, want %v", r.Key, got, want[string(r.Key)])
		}
		if !json.Valid(r.Value) || r.Timestamp.Unix() != 1 {
			t.Errorf("%s: at %v %s", r.Key, r.Timestamp, r.Value)
		}
	}
}

// produced summarises the produce requests of the brokers.
type produced struct {
	mu         sync.Mutex
	requests   int
	acks       []int16
	duplicates bool // a sequence number came twice
	seen       map[string]bool
	problems   []string
}

// spy inspects each produce request.
func spy(c *kfake.Cluster) *produced {
	p := &produced{seen: map[string]bool{}}
	c.ControlKey(int16(kmsg.Produce), func(request kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		p.mu.Lock()
		defer p.mu.Unlock()
		p.requests++
		r := request.(*kmsg.ProduceRequest)
		p.acks = append(p.acks, r.Acks)
		for _, topic := range r.Topics {
			for _, partition := range topic.Partitions {
				p.look(partition)
			}
		}
		return nil, nil, false
	})
	return p
}

func (p *produced) look(partition kmsg.ProduceRequestTopicPartition) {
	var b kmsg.RecordBatch
	if err := b.ReadFrom(partition.Records); err != nil {
		p.problems = append(p.problems, err.Error())
		return
	}
	if b.ProducerID < 0 || b.ProducerEpoch < 0 || b.FirstSequence < 0 {
		p.problems = append(p.problems, fmt.Sprintf("a batch of producer %d, epoch %d, sequence %d", b.ProducerID, b.ProducerEpoch, b.FirstSequence))
	}
	at := fmt.Sprintf("%d/%d/%d/%d", partition.Partition, b.ProducerID, b.ProducerEpoch, b.FirstSequence)
	p.duplicates = p.duplicates || p.seen[at]
	p.seen[at] = true
}

// TestIdempotent: each batch requires the acknowledgement of all in-sync replicas, and has a
// producer id and a sequence number. A batch whose response is lost is sent again with the same
// ones. It is there once, and the host does not notice.
func TestIdempotent(t *testing.T) {
	// Guarantee: kafka-delivery
	w := sinktest.NewWire(t, "")
	c, all := fake(t, behind(w)), sinktest.Keyed(t, 60, "abcde")
	sink := open(t, c, "")
	if errs := sink.Write(t.Context(), all[:20]); errs != nil {
		t.Fatal(errs)
	}
	p := spy(c)
	// The batch is appended, and the response says that it may not be.
	lost := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotEnoughReplicasAfterAppend, Count: 3})
	if errs := sink.Write(t.Context(), all[20:]); errs != nil {
		t.Fatal(errs)
	}
	if lost.Hits() != 3 || !p.duplicates || p.requests < 4 || len(p.problems) > 0 || slices.ContainsFunc(p.acks, func(acks int16) bool { return acks != -1 }) {
		t.Errorf("%d answers were lost, %d requests with acks %v, sequences twice: %v, %v", lost.Hits(), p.requests, p.acks, p.duplicates, p.problems)
	}
	sinktest.Compare(t, ids(consume(t, c, 60)), sinktest.IDs(all))
}

// TestOrder: with errors that the client retries, each event is in its partition once and in order.
func TestOrder(t *testing.T) {
	// Guarantee: broker-key-order
	c, all := fake(t), sinktest.Keyed(t, 60, "abcde")
	fault := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotLeaderForPartition, Count: 4})
	if errs := open(t, c, "").Write(t.Context(), all); errs != nil || fault.Hits() != 4 {
		t.Fatalf("%d errors were met: %v", fault.Hits(), errs)
	}
	checkOrder(t, c, all)
}

// checkOrder tests that the topic contains all events once, and those of each key in order.
func checkOrder(t *testing.T, c *kfake.Cluster, all []event.Event) {
	t.Helper()
	want := map[string][]string{}
	for _, e := range all {
		want[e.Key] = append(want[e.Key], e.ID)
	}
	got := byKey(consume(t, c, len(all)))
	for key := range want {
		if !slices.Equal(got[key], want[key]) {
			t.Errorf("key %s: got %v, want %v", key, got[key], want[key])
		}
	}
}

// refuse answers each batch that contains an event with one of these ids with an error, and appends
// none of it.
func refuse(c *kfake.Cluster, with *kerr.Error, ids ...string) *kfake.FaultHandle {
	return c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: with, Count: -1, When: func(request kmsg.Request) bool {
		for _, topic := range request.(*kmsg.ProduceRequest).Topics {
			for _, partition := range topic.Partitions {
				var b kmsg.RecordBatch
				if b.ReadFrom(partition.Records) != nil {
					return true
				}
				records, err := kfake.BatchRecords(b)
				if err != nil || slices.ContainsFunc(records, func(r kmsg.Record) bool {
					return slices.ContainsFunc(r.Headers, func(h kmsg.Header) bool { return h.Key == "ce_id" && slices.Contains(ids, string(h.Value)) })
				}) {
					return true
				}
			}
		}
		return false
	}})
}

// TestNotOvertaken: an event is not sent after a failed event of the same key, although the broker
// would accept it. Other keys continue. A rejected event delays no other.
func TestNotOvertaken(t *testing.T) {
	// Guarantee: key-order-in-batch, broker-key-order
	c, all := fake(t, kfake.SeedTopics(1, "k8s")), sinktest.Keyed(t, 9, "abcabcabd")
	sink := open(t, c, "")
	// Flights: a b c, a b c, a b d. In the first, b is faulty. In the second, the broker accepts
	// nothing. It would accept the third.
	invalid, refusal := refuse(c, kerr.InvalidRecord, all[1].ID), refuse(c, kerr.TopicAuthorizationFailed, sinktest.IDs(all[3:6])...)
	errs := sink.Write(t.Context(), all)
	if v := sinktest.Verdicts(9, errs); v != "drduuuuud" || !errors.Is(errs[6], errs[3]) || !errors.Is(errs[7], errs[4]) {
		t.Fatalf("got %s: %v", v, errs)
	}
	sinktest.Compare(t, ids(consumeAll(t, c)), []string{all[0].ID, all[2].ID, all[8].ID})
	refusal.Remove()
	invalid.Remove()
	if errs := sink.Write(t.Context(), all[3:8]); errs != nil {
		t.Fatal(errs)
	}
	got := byKey(consume(t, c, 8))
	for key, want := range map[string][]string{"a": {all[0].ID, all[3].ID, all[6].ID}, "b": {all[4].ID, all[7].ID}} {
		if !slices.Equal(got[key], want) {
			t.Errorf("key %s: got %v, want %v", key, got[key], want)
		}
	}
}

// TestTooLarge: only the event that is too large is rejected, by the client or by the broker. A
// batch that is too large as a whole is split.
func TestTooLarge(t *testing.T) {
	// Guarantee: refused-alone
	for name, test := range map[string]struct {
		more  string
		limit kfake.Opt
	}{
		"for the sink":   {", maxBytes: 4Ki", kfake.NumBrokers(1)},
		"for the broker": {"", kfake.BrokerConfigs(map[string]string{"message.max.bytes": "4096"})},
	} {
		t.Run(name, func(t *testing.T) {
			c, all := fake(t, test.limit), sinktest.Events(t, "web", 30, 20)
			for i := range all {
				all[i].Data = noise(900) // ten of them exceed the maximum batch
			}
			all[7].Data = noise(6000)
			errs := open(t, c, test.more).Write(t.Context(), all)
			want := strings.Repeat("d", 7) + "r" + strings.Repeat("d", 22)
			if v := sinktest.Verdicts(30, errs); v != want || strings.Contains(errs[7].Error(), string(all[7].Data[1:9])) ||
				!strings.Contains(errs[7].Error(), "event "+all[7].ID+" of 8002 bytes: ") ||
				!strings.Contains(errs[7].Error(), "give the route an emit") {
				t.Errorf("got %s: %v", v, errs)
			}
			sinktest.Compare(t, ids(consume(t, c, 29)), append(sinktest.IDs(all[:7]), sinktest.IDs(all[8:])...))
		})
	}
}

// TestRefusals: after a permanent error of a batch, the faulty event is found and rejected. After a
// temporary one, none is.
func TestRefusals(t *testing.T) {
	for of, rejected := range map[*kerr.Error]bool{
		kerr.MessageTooLarge: true, kerr.RecordListTooLarge: true, kerr.InvalidRecord: true, kerr.InvalidTimestamp: true,
		kerr.TopicAuthorizationFailed: false, kerr.PolicyViolation: false, kerr.InvalidRequiredAcks: false, kerr.UnsupportedForMessageFormat: false,
	} {
		t.Run(of.Message, func(t *testing.T) {
			c, all := fake(t, kfake.SeedTopics(1, "k8s")), sinktest.Events(t, "web", 3, 20)
			sink, refusal := open(t, c, ""), refuse(c, of, all[1].ID)
			errs := sink.Write(t.Context(), all)
			// the verdict of the others depends on their batches
			v := sinktest.Verdicts(3, errs)
			if rejected && v != "drd" || !rejected && (v[1] != 'u' || strings.Contains(v, "r")) || !strings.Contains(errs[1].Error(), of.Message) {
				t.Fatalf("got %s: %v", v, errs)
			}
			if category := plugins.Category(errs[1]); rejected && category != "answered "+of.Message {
				t.Errorf("category %q", category)
			}
			refusal.Remove()
			for i := range all {
				if v[i] == 'u' {
					sinktest.Insist(t, sink, all[i:i+1])
				}
			}
			consume(t, c, 3-strings.Count(v, "r"))
		})
	}
}

// TestBlame: several writes at the same time share batches. The faulty event of a rejected batch is
// found, and no other event is rejected.
func TestBlame(t *testing.T) {
	// Guarantee: refused-alone
	c := fake(t, kfake.SeedTopics(1, "k8s"))
	sink := open(t, c, "")
	const writes, each = 8, 20
	var all [][]event.Event
	var bad []string
	for i := range writes {
		all = append(all, sinktest.Events(t, fmt.Sprint("w", i), each, 20))
		bad = append(bad, all[i][i].ID)
	}
	refuse(c, kerr.MessageTooLarge, bad...)
	var writers sync.WaitGroup
	for i, events := range all {
		writers.Go(func() {
			for k := range events { // one by one, so that writes share batches
				if v := sinktest.Verdicts(1, sink.Write(t.Context(), events[k:k+1])); (v == "r") != (k == i) || v == "u" {
					t.Errorf("event %d of writer %d: %s", k, i, v)
				}
			}
		})
	}
	writers.Wait()
	if got := ids(consume(t, c, writes*(each-1))); slices.ContainsFunc(bad, func(id string) bool { return slices.Contains(got, id) }) {
		t.Error("what was rejected is there")
	}
}
