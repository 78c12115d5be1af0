package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/deltarouter/deltarouter/pkg/config"
)

// leastTimeout is the shortest that the client lets brokers be asked to keep.
const leastTimeout = 100 * time.Millisecond

// connect makes a client, which connects when it is used.
func connect(c *sinkConfig, w *witness, more ...kgo.Opt) (*kgo.Client, error) {
	options := []kgo.Opt{
		kgo.SeedBrokers(c.Brokers...), kgo.DefaultProduceTopic(c.Topic), kgo.ClientID("deltarouter"), kgo.DisableClientMetrics(),
		kgo.RequiredAcks(kgo.AllISRAcks()), kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)),
		kgo.ProducerBatchMaxBytes(int32(min(c.MaxBytes, 256<<20))), kgo.ProducerLinger(0),
		// A write must end when its time is over, though nobody knows then whether what was sent
		// has arrived.
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

// mechanism reads the password anew for each connection.
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

// dial connects, with what the files of tls have now. It ends in time: until it does the client
// tries nothing else with the broker.
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

// Probe implements [plugins.Prober]. It connects to a broker, as whom the configuration says, and
// asks for the topic. Nothing is produced.
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
	request := kmsg.NewPtrMetadataRequest() // does not ask for the topic to be made
	request.Topics = append(request.Topics, topic)
	answer, err := request.RequestWith(ctx, client)
	if err != nil {
		return fmt.Errorf("%s: %w", c.Brokers[0], w.explain(err, begin))
	}
	for _, t := range answer.Topics {
		if err := kerr.ErrorForCode(t.ErrorCode); err != nil {
			return fmt.Errorf("topic %s at %s: %w", c.Topic, c.Brokers[0], err)
		}
	}
	return nil
}

// witness keeps the last error that the client only logs, since it tries again: why there is no
// connection, or no leader.
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

// OnBrokerRead implements [kgo.HookBrokerRead]: that a broker hangs up is not logged.
func (w *witness) OnBrokerRead(_ kgo.BrokerMetadata, _ int16, _ int, _, _ time.Duration, err error) {
	if err != nil {
		w.keep(err)
	}
}

// keep keeps what is a reason: that a connection took too long is one, that a write has given up is
// none.
func (w *witness) keep(err error) {
	var network *net.OpError
	if errors.As(err, &network) || !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
		w.last.Store(&trouble{time.Now(), err})
	}
}

// explain adds to err what went wrong since.
func (w *witness) explain(err error, since time.Time) error {
	if last := w.last.Load(); last != nil && last.at.After(since) && !strings.Contains(err.Error(), last.err.Error()) {
		return fmt.Errorf("%w; the last error was: %w", err, last.err)
	}
	return err
}

// gate lets many in at the same time, or one alone.
type gate struct {
	places chan struct{} // each has one of them
	alone  chan struct{} // who has the token may collect all places
}

func newGate() gate { return gate{make(chan struct{}, 256), make(chan struct{}, 1)} }

// enter waits for a place, or for all of them, as long as the context allows.
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
