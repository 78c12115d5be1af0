// Package kafka is the sink kind `kafka`: it produces each event to a topic and takes it for delivered when all replicas in sync have it.
//
// The producer is idempotent: what the client itself tries again is in the topic once, and in order. The key of a record is the
// route's key (else the object), so that its events are in one partition, and those of one key go one after another: one that fails is not
// overtaken. A message that is too large is rejected; all else means that Kafka is unavailable.
package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

type sink struct {
	name   string
	config Config
	client *kgo.Client
}

func newSink(c Config, env plugins.Env) (*sink, error) {
	client, err := connect(&c)
	if err != nil {
		return nil, fmt.Errorf("kafka %q: %w", env.Name, err)
	}
	return &sink{env.Name, c, client}, nil
}

// connect makes a client, which connects when it is used.
func connect(c *Config) (*kgo.Client, error) {
	options := []kgo.Opt{
		kgo.SeedBrokers(c.Brokers...), kgo.DefaultProduceTopic(c.Topic), kgo.ClientID("deltarouter"), kgo.DisableClientMetrics(),
		kgo.RequiredAcks(kgo.AllISRAcks()), kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)),
		kgo.ProducerBatchMaxBytes(int32(min(c.MaxBytes, 256<<20))), kgo.ProducerLinger(0),
		// A write must end when its time is over, though nobody knows then whether what was sent has arrived.
		kgo.AllowIdempotentProduceCancellation(),
		kgo.RetryBackoffFn(func(int) time.Duration { return 100 * time.Millisecond }), kgo.MetadataMinAge(100 * time.Millisecond),
		kgo.UnknownTopicRetries(1),
		kgo.Dialer(func(ctx context.Context, network, address string) (net.Conn, error) {
			if c.TLS == nil {
				return (&net.Dialer{}).DialContext(ctx, network, address)
			}
			settings, err := c.TLS.Load()
			if err != nil {
				return nil, err
			}
			return (&tls.Dialer{Config: settings}).DialContext(ctx, network, address)
		}),
	}
	if c.SASL.User != "" {
		options = append(options, kgo.SASL(c.SASL.mechanism()))
	}
	return kgo.NewClient(options...)
}

// mechanism reads the password anew for each connection.
func (s *SASL) mechanism() sasl.Mechanism {
	read := func() (string, error) {
		password, err := s.Password.Value()
		if err != nil {
			return "", fmt.Errorf("sasl.password: %w", err)
		}
		return password, nil
	}
	if s.Mechanism == "plain" {
		return plain.Plain(func(context.Context) (plain.Auth, error) {
			password, err := read()
			return plain.Auth{User: s.User, Pass: password}, err
		})
	}
	scrammed := func(context.Context) (scram.Auth, error) {
		password, err := read()
		return scram.Auth{User: s.User, Pass: password}, err
	}
	if s.Mechanism == "scram-sha-256" {
		return scram.Sha256(scrammed)
	}
	return scram.Sha512(scrammed)
}

// Write implements [plugins.Sink]: all events are in flight together, but those of one key.
func (s *sink) Write(ctx context.Context, events []event.Event) []error {
	ctx, cancel := context.WithTimeout(ctx, s.config.Timeout)
	defer cancel()
	errs, failed, some := make([]error, len(events)), map[string]error{}, false
	var flight []int
	keys := map[string]bool{}
	land := func() {
		s.produce(ctx, events, flight, errs)
		for _, i := range flight {
			if err := errs[i]; err != nil && !plugins.IsRejected(err) {
				failed[events[i].OrderKey()] = err
			}
		}
		flight = flight[:0]
		clear(keys)
	}
	for i := range events {
		key := events[i].OrderKey()
		if keys[key] {
			land()
		}
		if errs[i] = failed[key]; errs[i] != nil {
			continue // it must not overtake
		}
		keys[key] = true
		flight = append(flight, i)
	}
	land()
	for _, err := range errs {
		some = some || err != nil
	}
	if !some {
		return nil
	}
	return errs
}

// produce produces the events of a flight. A batch that is too large for the broker fails as a whole: its events are tried one by one.
func (s *sink) produce(ctx context.Context, events []event.Event, flight []int, errs []error) {
	records := make([]*kgo.Record, len(flight))
	index := make(map[*kgo.Record]int, len(flight))
	for n, i := range flight {
		records[n] = record(&events[i])
		index[records[n]] = i
	}
	for _, result := range s.client.ProduceSync(ctx, records...) {
		i := index[result.Record]
		tooLarge := errors.Is(result.Err, kerr.MessageTooLarge) || errors.Is(result.Err, kerr.RecordListTooLarge)
		switch {
		case result.Err == nil:
		case tooLarge && len(flight) > 1:
			s.produce(ctx, events, []int{i}, errs)
		case tooLarge || errors.Is(result.Err, kerr.InvalidRecord):
			errs[i] = plugins.Reject(s.named(fmt.Errorf("event %s of %d bytes: %w", events[i].ID, len(events[i].Data), result.Err)))
		default:
			errs[i] = s.named(result.Err)
		}
	}
}

func (s *sink) named(err error) error {
	return fmt.Errorf("kafka %q: topic %s at %s: %w", s.name, s.config.Topic, s.config.Brokers[0], err)
}

// record makes the record of an event: a CloudEvent in binary mode.
func record(e *event.Event) *kgo.Record {
	r := &kgo.Record{Key: []byte(e.OrderKey()), Value: e.Data, Timestamp: e.Time}
	for name, value := range e.Attributes {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: "ce_" + name, Value: []byte(value)})
	}
	if len(e.Data) > 0 {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: "content-type", Value: []byte("application/json")})
	}
	return r
}

// Close implements [plugins.Sink]. Each write has waited for its acknowledgements: nothing is left to flush.
func (s *sink) Close(context.Context) error {
	s.client.Close()
	return nil
}

// probe connects to a broker. Nothing is produced.
func probe(ctx context.Context, node config.Node) error {
	var c Config
	if err := node.Decode(&c).Err(); err != nil {
		return err
	}
	client, err := connect(&c)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	if err := client.Ping(ctx); err != nil {
		return fmt.Errorf("%s: %w", c.Brokers[0], err)
	}
	return nil
}
