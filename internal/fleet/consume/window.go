package consume

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go/jetstream"
)

// wideWindow permits all parts of a message to be sent, which are one batch of the publisher: its
// maximum is 1,000 messages.
const wideWindow = 1000

// consumerConfig returns the configuration of the consumer with a maximum number of messages that
// are sent and not acknowledged.
func (s *session) consumerConfig(window int) jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{
		Durable: s.name, FilterSubject: s.Filter, AckPolicy: jetstream.AckExplicitPolicy, AckWait: s.AckWait,
		MaxAckPending: window, MaxDeliver: -1, InactiveThreshold: inactive,
	}
}

// resize widens the window when the parts of one message fill it: no part is acknowledged before
// the last one has arrived, which the server does not send otherwise. The window is as before when
// the message is complete.
func (s *session) resize(ctx context.Context) (why reason, ended bool) {
	window := s.Pending
	if len(s.parts) >= s.Pending {
		window = max(wideWindow, s.Pending)
	}
	if window == s.window || window < s.window && s.more {
		return 0, false
	}
	// Without the change the last part would never come, so there is nothing else to do meanwhile
	// but to keep the messages in hand alive.
	for ctx.Err() == nil {
		err := s.update(ctx, window)
		if err == nil {
			s.window = window
			return 0, false
		}
		if errors.Is(err, jetstream.ErrConsumerDoesNotExist) || errors.Is(err, jetstream.ErrConsumerNotFound) {
			return gap, true
		}
		s.complain("the consumer of a partition cannot be changed for a message with many parts, trying again", err)
		s.hand.keep()
		s.sleep(ctx, retryPause)
		select {
		case <-s.lease.Released():
			return s.left(ctx), true
		default:
		}
	}
	return lost, true
}

func (s *session) update(ctx context.Context, window int) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	_, err := s.JS.UpdateConsumer(ctx, s.Stream, s.consumerConfig(window))
	return err
}
