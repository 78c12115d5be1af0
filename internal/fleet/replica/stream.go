package replica

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltarouter/deltarouter/internal/fleet"
)

const (
	// pullBytes limits the messages on their way to a follower.
	pullBytes = 4 << 20
	// pullExpiry and pullBeat show soon that a consumer ended, like that of a server that restarted.
	pullExpiry = 5 * time.Second
	pullBeat   = time.Second
	// consumerTime is the time after which the server removes a consumer that is not read.
	consumerTime = 30 * time.Second
)

// reader reads a stream in order. Unlike the ordered consumer of nats.go it ends with its context
// at once, and after an outage with an error soon.
type reader struct {
	stream   string
	messages jetstream.MessagesContext
	last     uint64
}

// readStream begins to read a stream, with a filter or from a sequence on.
func readStream(ctx context.Context, conn *fleet.Conn, stream, filter string, from uint64) (*reader, error) {
	cfg := jetstream.ConsumerConfig{
		AckPolicy: jetstream.AckNonePolicy, MaxDeliver: 1, InactiveThreshold: consumerTime, Replicas: 1, MemoryStorage: true, FilterSubject: filter,
	}
	if from > 0 {
		cfg.DeliverPolicy, cfg.OptStartSeq = jetstream.DeliverByStartSequencePolicy, from
	}
	request, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	consumer, err := conn.JS.CreateConsumer(request, stream, cfg)
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", stream, err)
	}
	messages, err := consumer.Messages(jetstream.PullMaxBytes(pullBytes), jetstream.PullExpiry(pullExpiry),
		jetstream.PullHeartbeat(pullBeat), jetstream.WithMessagesErrOnMissingHeartbeat(true))
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", stream, err)
	}
	return &reader{stream: stream, messages: messages}, nil
}

func (r *reader) stop() { r.messages.Stop() }

// next returns the next message. None is left out.
func (r *reader) next(ctx context.Context) (jetstream.Msg, *jetstream.MsgMetadata, error) {
	m, err := r.messages.Next(jetstream.NextContext(ctx))
	if err != nil {
		return nil, nil, fmt.Errorf("stream %s: %w", r.stream, err)
	}
	about, err := m.Metadata()
	if err != nil {
		return nil, nil, fmt.Errorf("stream %s: %w", r.stream, err)
	}
	if r.last++; about.Sequence.Consumer != r.last {
		return nil, nil, fmt.Errorf("stream %s: message %d came in place of %d", r.stream, about.Sequence.Consumer, r.last)
	}
	return m, about, nil
}
