// Package consume gets the messages of a partition from the stream of a fleet, as long as its
// worker owns the partition.
//
// Each epoch has a consumer of its own: the new owner deletes those of lower epochs and creates
// one, which begins with the oldest message that is not acknowledged. So nothing that an earlier
// owner was sent is missing, and its acknowledgements of consumers that are gone have no effect.
//
// The messages that a consumer sends are numbered from 1. If a number is missing, a message was
// lost on its way and would be overtaken by newer ones: the worker finishes the messages in hand
// and takes the partition again, with another epoch.
//
// A message is acknowledged when it is done, and the acknowledgement is confirmed by the server. A
// message that is sent again although it is in hand is ignored; one that is done is acknowledged
// again.
package consume

import (
	"context"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltarouter/deltarouter/internal/complaints"
	"github.com/deltarouter/deltarouter/internal/fleet/owner"
)

// Message is a message of a partition.
type Message struct {
	Sequence uint64 // in the stream
	Subject  string
	Header   nats.Header
	Data     []byte
}

// Handler handles the messages of a partition in one epoch.
type Handler interface {
	// Take puts a message in hand. It does not block for long, and is called in the order of the
	// stream. poison: the message ended several workers, and becomes a dead letter instead. more:
	// the message is a part, and the next message belongs to it. If it returns an error, the
	// message cannot be handled, now or here, and no later one is taken.
	Take(m *Message, poison bool) (more bool, err error)
	// Close ends all work at once. Nothing is begun after it has returned.
	Close()
}

// Config is the configuration of the consumers of all partitions of a route.
type Config struct {
	NATS   *nats.Conn
	JS     jetstream.JetStream
	Stream string
	Filter string // matches the subjects of the partition
	Prefix string // of the names of the consumers of the partition; the epoch follows
	// Pending is the maximum number of messages that are sent and not acknowledged; the parts of
	// one message may be more.
	Pending int
	// AckWait is the time after which a message is sent again whose owner gives no sign of it; 0:
	// 30s
	AckWait time.Duration
	// Drain is how long a hand-over waits for messages in hand; 0: 30s
	Drain time.Duration
	// Open opens the handler of an epoch, which calls done with messages that need not be sent
	// again.
	Open func(ctx context.Context, l *owner.Lease, done func(sequences ...uint64)) (Handler, error)
	Log  *slog.Logger
	// Route is the name of the route, for Complaints, which get what many partitions may have for
	// one reason.
	Route      string
	Complaints *complaints.Log // nil: Hold makes them from Log

	lose func() bool // of tests: loses a message on its way; nil: none
}

const (
	defaultAckWait = 30 * time.Second
	defaultDrain   = 30 * time.Second
	// retryPause is the pause before a request that failed is sent again.
	retryPause = 100 * time.Millisecond
	// refusedPause is the pause after a message that the handler cannot take.
	refusedPause = 30 * time.Second
	// requestTimeout bounds a request to the server.
	requestTimeout = 5 * time.Second
	// confirmWait bounds the wait for the confirmations of the last acknowledgements.
	confirmWait = 10 * time.Second
	// removedPause is the pause between two looks whether the stream has removed the messages.
	removedPause = 10 * time.Millisecond
	// inactive is the time after which the server removes a consumer that nobody uses.
	inactive = 10 * time.Minute
)

// Hold is an [owner.Hold]: it consumes the partition of the lease until the partition should be
// handed over or the lease is lost. It returns true if the partition must be taken again.
func (c Config) Hold(ctx context.Context, l *owner.Lease) (again bool) {
	if c.AckWait == 0 {
		c.AckWait = defaultAckWait
	}
	if c.Complaints == nil {
		c.Complaints = complaints.New(c.Log)
	}
	if c.Drain == 0 {
		c.Drain = defaultDrain
	}
	c.Log = c.Log.With(slog.String("partition", l.Partition.String()), slog.Uint64("epoch", l.Epoch))
	s := &session{Config: c, lease: l, name: c.consumer(l.Epoch)}
	if !s.prepare(ctx) {
		return false
	}
	// The deferred calls end the work before they remove its consumer.
	defer s.remove(ctx)
	if err := s.open(ctx); err != nil {
		s.complain("a partition cannot be handled, trying again", err)
		s.sleep(ctx, refusedPause)
		return true
	}
	defer s.close()
	s.keep = time.NewTicker(c.AckWait / 3)
	defer s.keep.Stop()
	why := s.run(ctx)
	// Without the lease nothing may be finished: the next owner has begun.
	if why == lost {
		return false
	}
	s.finish(ctx)
	return why == gap
}

// reason is why a session ends.
type reason uint8

const (
	lost     reason = iota // the lease was lost
	released               // the partition should be handed over
	gap                    // a message is missing, or the consumer is gone
)

// session is the work on a partition in one epoch.
type session struct {
	Config

	lease   *owner.Lease
	name    string // of the consumer
	hand    *hand
	handler Handler

	messages chan *nats.Msg
	sub      *nats.Subscription
	inbox    string
	pulls    int
	dseq     uint64 // of the last message in the order of the consumer

	keep *time.Ticker // of signs of life for the messages in hand

	taken int // messages since the takeover
	// the last message that the owner before can have had in hand; 0: it was not taken yet
	suspect uint64
	trusted bool     // all these are done
	careful bool     // one message at a time
	poison  bool     // the parts of a message that ended several workers
	more    bool     // the last message was a part
	parts   []uint64 // sequences of the message that is not complete
	past    uint64   // the messages up to this one are done, although a replica may still have them
	window  int      // messages that the server sends without an acknowledgement
}

// open opens the handler and subscribes.
func (s *session) open(ctx context.Context) error {
	var err error
	if s.hand, err = newHand(s.NATS, s.AckWait); err != nil {
		return err
	}
	s.hand.high = s.past
	// The messages have the subjects of the stream, so only the subscription tells which takeover
	// they belong to.
	s.inbox = s.NATS.NewInbox()
	s.messages = make(chan *nats.Msg, 2*s.Pending+64)
	if s.sub, err = s.NATS.ChanSubscribe(s.inbox+".*", s.messages); err != nil {
		s.hand.close()
		return err
	}
	if s.handler, err = s.Open(ctx, s.lease, s.hand.done); err != nil {
		_ = s.sub.Unsubscribe()
		s.hand.close()
		return err
	}
	s.careful = s.lease.Trail.Unclean >= carefulAfter
	if s.careful {
		s.Log.Warn("several workers in a row ended with this partition: its messages are handled one by one to find one that ends workers")
	}
	return nil
}

func (s *session) close() {
	s.handler.Close()
	_ = s.sub.Unsubscribe()
	s.hand.close()
}

// finish stops the pulls, and waits until nothing is in hand and all acknowledgements are
// confirmed.
func (s *session) finish(ctx context.Context) {
	_ = s.sub.Unsubscribe()
	s.hand.forget(s.parts...) // the next owner gets all parts
	drain, cancel := context.WithTimeout(ctx, s.Drain)
	defer cancel()
	if !s.hand.wait(drain, nil, s.hand.empty) {
		if ctx.Err() == nil {
			s.complain("a partition is handed over with messages in hand, which the next owner gets again", nil)
		}
		return
	}
	confirm, stop := context.WithTimeout(ctx, confirmWait)
	defer stop()
	if done := s.hand.wait(confirm, nil, s.hand.confirmed) && s.removed(confirm); !done && ctx.Err() == nil {
		s.complain("a partition is handed over, but NATS has not confirmed in time that its messages are done: the next owner may get some again", nil)
	}
}

// complain logs something that other partitions may have for the same reason.
func (s *session) complain(message string, err error) {
	s.Complaints.Say(slog.LevelWarn, message, err, slog.String("route", s.Route))
	s.Log.Debug(message, slog.Any("err", err)) //nolint:sloglint // the callers have constants
}

// removed waits until the leader of the stream has removed all messages that are done; false: ctx
// ended before. The consumer confirms an acknowledgement before: without the consumer, a busy
// leader would not learn of it, and the next owner would get the message again.
func (s *session) removed(ctx context.Context) bool {
	high := s.hand.high
	if len(s.parts) > 0 {
		high = s.parts[0] - 1
	}
	for ctx.Err() == nil {
		if oldest, err := first(ctx, s.NATS, s.Stream, s.Filter); err == nil && (oldest == 0 || oldest > high) {
			return true
		}
		select {
		case <-ctx.Done():
		case <-time.After(removedPause):
		}
	}
	return false
}

// sleep waits; it returns early if the partition is lost or to be handed over.
func (s *session) sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-s.lease.Released():
	case <-time.After(d):
	}
}
