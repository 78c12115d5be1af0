package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/deltarouter/deltarouter/internal/httpsink"
	"github.com/deltarouter/deltarouter/pkg/config"
)

// leastTimeout is the minimum timeout that the client accepts for brokers.
const leastTimeout = 100 * time.Millisecond

// connect returns a client. The client connects at its first use.
func connect(c *sinkConfig, w *witness, more ...kgo.Opt) (*kgo.Client, error) {
	options := []kgo.Opt{
		kgo.SeedBrokers(c.Brokers...), kgo.DefaultProduceTopic(c.Topic), kgo.ClientID("deltarouter"), kgo.DisableClientMetrics(),
		kgo.RequiredAcks(kgo.AllISRAcks()), kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)),
		kgo.ProducerBatchMaxBytes(int32(min(c.MaxBytes, 256<<20))), kgo.ProducerLinger(0),
		// A Write must end with its timeout, even though it is unknown then whether its events have
		// arrived.
		kgo.AllowIdempotentProduceCancellation(),
		kgo.RetryBackoffFn(func(int) time.Duration { return 100 * time.Millisecond }), kgo.MetadataMinAge(100 * time.Millisecond),
		kgo.UnknownTopicRetries(1),
		kgo.ProduceRequestTimeout(max(c.Timeout, leastTimeout)), kgo.RequestTimeoutOverhead(max(c.Timeout, leastTimeout)),
		kgo.Dialer(c.dial), kgo.WithLogger(w), kgo.WithHooks(w),
	}
	if c.SASL.User != "" {
		options = append(options, kgo.SASL(c.SASL.mechanism()))
	}
	return kgo.NewClient(append(options, more...)...)
}

// mechanism returns a mechanism that reads the password again for each connection.
func (s *saslConfig) mechanism() sasl.Mechanism {
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

// hide returns err without the password, which a broker, or another host in its place, may repeat.
func (c *sinkConfig) hide(err error) error {
	password, missing := c.SASL.Password.Value()
	if missing != nil {
		return err
	}
	return httpsink.Hide(err, httpsink.Secrets(nil, nil, password))
}

// dial connects with the present content of the TLS files. It has a timeout, because the client
// does nothing else with the broker in the meantime.
func (c *sinkConfig) dial(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	if c.TLS == nil {
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
	settings, err := c.TLS.Load()
	if err != nil {
		return nil, err
	}
	return (&tls.Dialer{Config: settings}).DialContext(ctx, network, address)
}

// Probe implements [plugins.Prober]. It connects to a broker with the configured credentials, and
// requests the metadata of the topic. It produces nothing.
func (kind) Probe(ctx context.Context, node config.Node) error {
	var c sinkConfig
	if err := node.Decode(&c).Err(); err != nil {
		return err
	}
	var w witness
	client, err := connect(&c, &w, kgo.RequestRetries(len(c.Brokers)))
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	begin := time.Now()
	topic := kmsg.NewMetadataRequestTopic()
	topic.Topic = &c.Topic
	request := kmsg.NewPtrMetadataRequest() // does not create the topic
	request.Topics = append(request.Topics, topic)
	answer, err := request.RequestWith(ctx, client)
	if err != nil {
		return c.hide(fmt.Errorf("%s: %w", c.Brokers[0], w.explain(err, begin)))
	}
	for _, t := range answer.Topics {
		if err := kerr.ErrorForCode(t.ErrorCode); err != nil {
			return fmt.Errorf("topic %s at %s: %w", c.Topic, c.Brokers[0], err)
		}
	}
	return nil
}

// MaxEvent returns the largest event that the sink and the topic take, and the settings to raise. A
// topic whose configuration the user may not describe counts as unlimited.
func (kind) MaxEvent(ctx context.Context, node config.Node) (bytes int64, settings string, err error) {
	var c sinkConfig
	if err := node.Decode(&c).Err(); err != nil {
		return 0, "", err
	}
	client, err := connect(&c, &witness{}, kgo.RequestRetries(len(c.Brokers)))
	if err != nil {
		return 0, "", err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	topic := kmsg.NewDescribeConfigsRequestResource()
	topic.ResourceType, topic.ResourceName, topic.ConfigNames = kmsg.ConfigResourceTypeTopic, c.Topic, []string{maxMessage}
	request := kmsg.NewPtrDescribeConfigsRequest()
	request.Resources = append(request.Resources, topic)
	answer, err := request.RequestWith(ctx, client)
	if err != nil {
		return 0, "", c.hide(err)
	}
	bytes = int64(c.MaxBytes)
	for _, r := range answer.Resources {
		for _, found := range r.Configs {
			if found.Name != maxMessage || found.Value == nil {
				continue
			}
			if most, err := strconv.ParseInt(*found.Value, 10, 64); err == nil {
				bytes = min(bytes, most)
			}
		}
	}
	return bytes, "maxBytes of the sink and " + maxMessage + " of the topic", nil
}

// maxMessage is the configuration of a topic that bounds its messages.
const maxMessage = "max.message.bytes"

// witness keeps the last error that the client only logs because it retries: the reason of a
// missing connection or leader.
type witness struct{ last atomic.Pointer[trouble] }

type trouble struct {
	at  time.Time
	err error
}

// Level implements [kgo.Logger].
func (*witness) Level() kgo.LogLevel { return kgo.LogLevelWarn }

// Log implements [kgo.Logger].
func (w *witness) Log(_ kgo.LogLevel, _ string, pairs ...any) {
	for i := 1; i < len(pairs); i += 2 {
		if err, ok := pairs[i].(error); ok && pairs[i-1] == "err" {
			w.keep(err)
		}
	}
}

// OnBrokerRead implements [kgo.HookBrokerRead]. The client does not log that a broker closes the
// connection.
func (w *witness) OnBrokerRead(_ kgo.BrokerMetadata, _ int16, _ int, _, _ time.Duration, err error) {
	if err != nil {
		w.keep(err)
	}
}

// keep keeps errors that are a cause, such as a connection timeout. It ignores the end of a write.
func (w *witness) keep(err error) {
	var network *net.OpError
	if errors.As(err, &network) || !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
		w.last.Store(&trouble{time.Now(), err})
	}
}

// explain adds the last error since a time to err.
func (w *witness) explain(err error, since time.Time) error {
	if last := w.last.Load(); last != nil && last.at.After(since) && !strings.Contains(err.Error(), last.err.Error()) {
		return fmt.Errorf("%w; the last error was: %w", err, last.err)
	}
	return err
}

// gate admits many users at the same time, or one exclusively.
type gate struct {
	places chan struct{} // a user takes one of them
	alone  chan struct{} // a token: its holder may take all places
}

func newGate() gate { return gate{make(chan struct{}, 256), make(chan struct{}, 1)} }

// enter waits for one place, or for all places if alone, until the context is done.
func (g *gate) enter(ctx context.Context, alone bool) (leave func(), err error) {
	want, got := 1, 0
	if alone {
		select {
		case g.alone <- struct{}{}:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		want = cap(g.places)
	}
	leave = func() {
		for range got {
			<-g.places
		}
		if alone {
			<-g.alone
		}
	}
	for ; got < want; got++ {
		select {
		case g.places <- struct{}{}:
		case <-ctx.Done():
			leave()
			return nil, ctx.Err()
		}
	}
	return leave, nil
}
