package consume

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
)

// complainAfter is the number of attempts of a takeover between two messages in the log.
const complainAfter = 50

func (c *Config) consumer(epoch uint64) string { return c.Prefix + strconv.FormatUint(epoch, 10) }

// prepare deletes the consumers of lower epochs and creates that of this one. It tries until it
// succeeds; false: the lease is lost or the partition should be handed over.
func (s *session) prepare(ctx context.Context) bool {
	var seen newer
	tries := 0
	for ctx.Err() == nil {
		err := s.takeover(ctx, &seen)
		if err == nil {
			return true
		}
		if tries++; tries%complainAfter == 0 && ctx.Err() == nil {
			s.complain("a partition cannot be taken over yet, trying again", err)
		}
		s.sleep(ctx, retryPause)
		select {
		case <-s.lease.Released():
			return false
		default:
		}
	}
	return false
}

// newer is a consumer of a higher epoch, and the state at the time at which it was seen.
type newer struct {
	epoch, revision uint64
	updates         int // confirmed since then
}

// outlives reports whether the consumer cannot be of a later owner: revisions rise, and one was
// confirmed to this owner after the consumer was seen that is lower than its epoch. So the bucket
// was made again since the consumer was.
func (n *newer) outlives(epoch, revision uint64) bool {
	if epoch != n.epoch {
		*n = newer{epoch: epoch, revision: revision}
		return false
	}
	if revision != n.revision {
		n.revision = revision
		n.updates++
	}
	return n.updates >= 2 && revision < epoch // the first one may have been sent before
}

func (s *session) takeover(ctx context.Context, seen *newer) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	stream, err := s.JS.Stream(ctx, s.Stream)
	if err != nil {
		return err
	}
	names := stream.ConsumerNames(ctx)
	for name := range names.Name() {
		epoch, ok := s.epochOf(name)
		if !ok || epoch == s.lease.Epoch || epoch > s.lease.Epoch && !seen.outlives(epoch, s.lease.Revision()) {
			continue
		}
		if err := stream.DeleteConsumer(ctx, name); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
			return err
		}
	}
	if err := names.Err(); err != nil {
		return err
	}
	// After the consumers of earlier owners are gone: until then their acknowledgements count.
	oldest, err := first(ctx, s.NATS, s.Stream, s.Filter)
	if err != nil {
		return err
	}
	s.past = max(oldest, 1) - 1
	// refused while there is a consumer of a newer epoch
	_, err = stream.CreateConsumer(ctx, s.consumerConfig(s.Pending))
	s.window = s.Pending
	return err
}

// epochOf returns the epoch of a consumer of this partition.
func (s *session) epochOf(name string) (epoch uint64, ok bool) {
	text, ok := strings.CutPrefix(name, s.Prefix)
	if !ok {
		return 0, false
	}
	epoch, err := strconv.ParseUint(text, 10, 64)
	return epoch, err == nil
}

// remove deletes the consumer of this epoch, so that the next owner finds none. It may fail: the
// next owner deletes it, too.
func (s *session) remove(ctx context.Context) {
	if ctx.Err() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout/5)
	defer cancel()
	_ = s.JS.DeleteConsumer(ctx, s.Stream, s.name)
}

// gone reports whether the consumer does not exist any more.
func (s *session) gone(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	_, err := s.JS.Consumer(ctx, s.Stream, s.name)
	return errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrStreamNotFound)
}
