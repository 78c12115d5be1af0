package fleet

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	// readBytes limits the messages on their way to a reader.
	readBytes = 4 << 20
	// readExpiry and readBeat show soon that a consumer ended, as after a restart of its server.
	readExpiry = 5 * time.Second
	readBeat   = time.Second
	// readerTime is the time after which the server removes a consumer that is not read.
	readerTime = 30 * time.Second
	// readTimeout limits the request of a new reader: a server that just started may not answer.
	readTimeout = 3 * time.Second
)

// Reader reads a stream in order. Unlike the ordered consumer of nats.go it ends with its context
// at once, and after an outage with an error soon. It is used by one goroutine.
type Reader struct {
	stream   string
	messages jetstream.MessagesContext
	last     uint64
}

// ReadStream begins to read a stream, with a filter or from a sequence on. The caller must call
// [Reader.Stop].
func (c *Conn) ReadStream(ctx context.Context, stream, filter string, from uint64) (*Reader, error) {
	cfg := jetstream.ConsumerConfig{
		AckPolicy: jetstream.AckNonePolicy, MaxDeliver: 1, InactiveThreshold: readerTime, Replicas: 1, MemoryStorage: true, FilterSubject: filter,
	}
	if from > 0 {
		cfg.DeliverPolicy, cfg.OptStartSeq = jetstream.DeliverByStartSequencePolicy, from
	}
	request, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	consumer, err := c.JS.CreateConsumer(request, stream, cfg)
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", stream, err)
	}
	messages, err := consumer.Messages(jetstream.PullMaxBytes(readBytes), jetstream.PullExpiry(readExpiry),
		jetstream.PullHeartbeat(readBeat), jetstream.WithMessagesErrOnMissingHeartbeat(true))
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", stream, err)
	}
	return &Reader{stream: stream, messages: messages}, nil
}

// Stop ends the reader.
func (r *Reader) Stop() { r.messages.Stop() }

// Next returns the next message. None is left out. After the error of ctx it may be called again.
func (r *Reader) Next(ctx context.Context) (jetstream.Msg, *jetstream.MsgMetadata, error) {
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
