// Package kafka is the sink kind `kafka`: it produces each event to a topic. An event is delivered
// when all in-sync replicas have it.
//
// The producer is idempotent: a retry of the client neither duplicates nor reorders events. The key
// of a record is the route's key (or else the object), so the events of a key are in one partition.
// They are produced one after another, so no event overtakes a failed one. A message that is too
// large is rejected. All other errors mean that Kafka is unavailable.
package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/deltarouter/deltarouter/internal/inorder"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

type sink struct {
	name    string
	config  sinkConfig
	gate    gate
	witness witness
	client  *kgo.Client // used inside gate, replaced by an exclusive user of gate
}

func newSink(_ context.Context, c sinkConfig, env plugins.SinkEnv) (plugins.Sink, error) {
	s := &sink{name: env.Name, config: c, gate: newGate()}
	var err error
	if s.client, err = connect(&s.config, &s.witness); err != nil {
		return nil, fmt.Errorf("kafka %q: %w", env.Name, err)
	}
	return s, nil
}

// Write implements [plugins.Sink]. Events of different keys are in flight at the same time.
func (s *sink) Write(ctx context.Context, events []event.Event) []error {
	ctx, cancel := context.WithTimeout(ctx, s.config.Timeout)
	defer cancel()
	return inorder.Flights(events, func(flight []int, errs []error) error {
		s.produce(ctx, events, flight, errs)
		return nil
	})
}

// produce produces the events of a flight.
func (s *sink) produce(ctx context.Context, events []event.Event, flight []int, errs []error) {
	leave, err := s.gate.enter(ctx, false)
	if err != nil {
		for _, i := range flight {
			errs[i] = s.named(err)
		}
		return
	}
	lost := s.send(ctx, events, flight, errs)
	leave()
	for _, i := range flight {
		if isRefused(errs[i]) {
			s.alone(ctx, events, i, errs)
		}
	}
	if lost {
		s.renew(ctx)
	}
}

// alone produces one event while no other one is in flight. Kafka rejects a batch as a whole, and
// the client puts events of several routes into one batch. So only a batch with a single event
// shows that this event is faulty.
func (s *sink) alone(ctx context.Context, events []event.Event, i int, errs []error) {
	leave, err := s.gate.enter(ctx, true)
	if err != nil {
		errs[i] = s.named(err)
		return
	}
	defer leave()
	if s.send(ctx, events, []int{i}, errs); isRefused(errs[i]) {
		err := fmt.Errorf("event %s of %d bytes: %w", events[i].ID, len(events[i].Data), errs[i])
		if answer, ok := errors.AsType[*kerr.Error](err); ok {
			err = plugins.Categorize(err, "answered "+answer.Message)
		}
		if errors.Is(err, kerr.MessageTooLarge) || errors.Is(err, kerr.RecordListTooLarge) {
			err = fmt.Errorf("%w: %s", err, lessData)
		}
		errs[i] = plugins.Reject(err)
	}
}

// lessData is the remedy for an event that is too large.
const lessData = "raise maxBytes of the sink and max.message.bytes of the topic (message.max.bytes of the brokers), or give the route an emit with the fields that the receiver needs (without one, an update has the object twice)"

// isRefused reports whether a batch was rejected because of its content.
func isRefused(err error) bool {
	return errors.Is(err, kerr.MessageTooLarge) || errors.Is(err, kerr.RecordListTooLarge) || errors.Is(err, kerr.InvalidRecord) ||
		errors.Is(err, kerr.InvalidTimestamp)
}

// send produces events and sets their errors. lost: the brokers do not know the topic any more.
func (s *sink) send(ctx context.Context, events []event.Event, flight []int, errs []error) (lost bool) {
	records := make([]*kgo.Record, len(flight))
	index := make(map[*kgo.Record]int, len(flight))
	for n, i := range flight {
		records[n] = record(&events[i])
		index[records[n]] = i
	}
	begin := time.Now()
	for _, result := range s.client.ProduceSync(ctx, records...) {
		i := index[result.Record]
		switch err := result.Err; {
		case err == nil:
			errs[i] = nil
		case errors.Is(err, context.DeadlineExceeded):
			errs[i] = s.named(s.witness.explain(fmt.Errorf("no acknowledgement within %v", s.config.Timeout), begin))
		default:
			lost = lost || errors.Is(err, kerr.UnknownTopicID) || errors.Is(err, kerr.UnknownTopicOrPartition)
			errs[i] = s.named(err)
		}
	}
	return lost
}

// renew replaces the client, because a client does not recognise a topic that was created again.
func (s *sink) renew(ctx context.Context) {
	leave, err := s.gate.enter(ctx, true)
	if err != nil {
		return // the next failed write renews the client
	}
	defer leave()
	if client, err := connect(&s.config, &s.witness); err == nil {
		s.client.Close()
		s.client = client
	}
}

func (s *sink) named(err error) error {
	return s.config.hide(fmt.Errorf("kafka %q: topic %s at %s: %w", s.name, s.config.Topic, s.config.Brokers[0], err))
}

// record returns the record of an event, a CloudEvent in binary mode.
func record(e *event.Event) *kgo.Record {
	r := &kgo.Record{Key: []byte(e.OrderKey()), Value: e.Data, Timestamp: e.Time}
	for name, value := range e.Attributes {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: "ce_" + name, Value: []byte(value)})
	}
	if e.TraceParent != "" { // the name that receivers with OpenTelemetry look for
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: "traceparent", Value: []byte(e.TraceParent)})
	}
	if len(e.Data) > 0 {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: "content-type", Value: []byte("application/json")})
	}
	return r
}

// Close implements [plugins.Sink]. There is nothing to flush, because each write has waited for its
// acknowledgements.
func (s *sink) Close(context.Context) error {
	s.client.Close()
	return nil
}
