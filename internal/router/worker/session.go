package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/deltarouter/deltarouter/internal/backoff"
	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/fleet"
	"github.com/deltarouter/deltarouter/internal/fleet/consume"
	"github.com/deltarouter/deltarouter/internal/fleet/deadletters"
	"github.com/deltarouter/deltarouter/internal/fleet/owner"
	"github.com/deltarouter/deltarouter/internal/fleet/work"
	"github.com/deltarouter/deltarouter/internal/pipeline"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// hold is an owner.Hold.
func (w *worker) hold(ctx context.Context, l *owner.Lease) (again bool) {
	p, names := l.Partition, w.conn.Names
	r := w.routes[p.Route]
	return consume.Config{
		NATS: w.conn.NATS, JS: w.conn.JS, Stream: names.Work(), Filter: names.WorkFilter(r.ID, p.Generation, p.Number),
		Prefix: names.ConsumerPrefix(r.ID, p.Generation, p.Number), Pending: r.pending, Drain: w.opts.DrainTimeout, Log: w.log.With(slog.String("route", r.Name)),
		Route: r.Name, Complaints: w.conn.Complaints,
		Open: func(ctx context.Context, l *owner.Lease, done func(...uint64)) (consume.Handler, error) {
			return w.session(ctx, r, l, done)
		},
	}.Hold(ctx, l)
}

// session is a pipeline with the deltas of one partition in one epoch. It ends with the lease, so
// nothing of an epoch is left when the partition is taken again.
type session struct {
	worker   *worker
	route    *route
	lease    *owner.Lease
	pipeline *pipeline.Pipeline
	done     func(sequences ...uint64)

	ctx      context.Context //nolint:containedctx // of the lease, for letters that are written beside the pipeline
	end      context.CancelFunc
	giving   sync.WaitGroup // up messages
	assembly work.Assembly
	parts    []uint64        // sequences of the parts of the open message
	older    map[string]bool // hashes of earlier configurations of the leader

	mu      sync.Mutex
	inHand  map[uint64]inHand       // by the number in the pipeline
	numbers map[*event.Delta]uint64 // of the deltas in hand
}

// inHand is a delta in the pipeline.
type inHand struct {
	delta     *event.Delta
	sequences []uint64 // of its parts in the stream
}

func (w *worker) session(ctx context.Context, r *route, l *owner.Lease, done func(...uint64)) (*session, error) {
	// the commits of the owners before, so that no call sees older values
	if err := w.values.Sync(ctx); err != nil {
		return nil, err
	}
	s := &session{
		worker: w, route: r, lease: l, done: done, older: map[string]bool{}, inHand: map[uint64]inHand{}, numbers: map[*event.Delta]uint64{},
	}
	s.ctx, s.end = context.WithCancel(ctx)
	var err error
	s.pipeline, err = pipeline.New(pipeline.Config{
		Routes: []spec.Settings{r.Settings}, Metrics: w.env.Metrics, Log: w.log, Complaints: w.conn.Complaints, DeadLetters: letters{s}, Clock: w.env.Clock,
		Permit: l.Valid, Settled: s.settled, Part: true,
	})
	if err != nil {
		s.end()
		return nil, err
	}
	s.pipeline.Start(s.ctx) //nolint:contextcheck // it is the one of the lease
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sessions[s] = true
	return s, nil
}

// Close implements consume.Handler.
func (s *session) Close() {
	s.worker.mu.Lock()
	delete(s.worker.sessions, s)
	s.worker.mu.Unlock()
	s.end()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), closeTimeout)
	defer cancel()
	if err := s.pipeline.Close(ctx); err != nil {
		s.worker.log.Warn("a partition ends with a call that does not return", slog.String("partition", s.lease.Partition.String()), slog.Any("err", err))
	}
	s.giving.Wait()
}

// Take implements consume.Handler.
func (s *session) Take(m *consume.Message, poison bool) (more bool, err error) {
	body, err := s.assembly.Add(m.Header, m.Data)
	if err != nil {
		// Parts of a message are missing because an owner before was done with it: it had not
		// acknowledged all of them.
		s.done(s.parts...)
		s.parts = nil
		if body == nil {
			if body, err = s.assembly.Add(m.Header, m.Data); err != nil {
				s.done(m.Sequence)
				return false, nil
			}
		}
	}
	if s.parts = append(s.parts, m.Sequence); body == nil {
		return true, nil
	}
	sequences := s.parts
	s.parts = nil
	err = s.worker.conn.Workers.Verify(m.Header.Get(fleet.MACHeader), fleet.PurposeDelta, m.Subject, "", body)
	if errors.Is(err, fleet.ErrOtherKey) { // maybe of the leader
		return false, fmt.Errorf("a delta: %w", err)
	}
	if err != nil {
		s.worker.conn.Refuse(fleet.RefusedDelta, fmt.Errorf("a delta: %w", err), slog.String("route", s.route.Name))
		s.done(sequences...)
		return false, nil
	}
	message, err := s.decode(body)
	if err != nil {
		return false, err
	}
	s.mu.Lock()
	s.inHand[m.Sequence], s.numbers[message.Delta] = inHand{message.Delta, sequences}, m.Sequence
	s.mu.Unlock()
	if poison {
		s.giveUp(message, m.Sequence, errors.New("three workers in a row ended while they had this delta in hand: look for its cause in their logs, then redeliver or drop it"))
		return false, nil
	}
	if err := s.deliver(message, m.Sequence); err != nil {
		s.giveUp(message, m.Sequence, err)
	}
	return false, nil
}

// deliver passes a delta to the pipeline.
func (s *session) deliver(m *work.Message, number uint64) error {
	return pipeline.Take(s.pipeline, s.route.Name, &pipeline.Work{
		Delta: m.Delta, Key: m.Key, Keyed: m.Keyed, Sink: m.Target, Made: m.Made, Number: number,
	})
}

// decode decodes a message, and checks that the configuration of this worker is not older than that
// of the message.
func (s *session) decode(body []byte) (*work.Message, error) {
	m, err := s.worker.codec.Decode(body)
	if err != nil {
		return nil, err
	}
	if m.Hash == s.route.hash || s.older[m.Hash] {
		return m, nil
	}
	ctx, cancel := context.WithTimeout(s.ctx, closeTimeout)
	defer cancel()
	now, err := owner.Announced(ctx, s.worker.conn.NATS, s.worker.conn.Names.Owners(), s.lease.Partition.Route)
	if err != nil {
		return nil, err
	}
	if now.Hash != s.route.hash {
		return nil, fmt.Errorf("the leader has another configuration of route %q: give the leader and the workers the same one", s.route.Name)
	}
	s.older[m.Hash] = true // the leader has changed to the configuration of this worker since
	return m, nil
}

// settled acknowledges the messages of deltas that the route is done with.
func (s *session) settled(_ string, numbers []uint64) {
	for _, n := range numbers {
		s.settle(n)
	}
}

func (s *session) settle(number uint64) {
	s.mu.Lock()
	settled := s.inHand[number]
	delete(s.inHand, number)
	delete(s.numbers, settled.delta)
	s.mu.Unlock()
	s.done(settled.sequences...)
}

// giveUp writes a delta to the dead letters without trying to deliver it.
func (s *session) giveUp(m *work.Message, number uint64, reason error) {
	letter := checkpoint.Letter{Time: time.Now(), Route: s.route.ID, Sink: m.Target, Error: reason.Error(), Attempts: 1, Delta: m.Delta}
	s.giving.Go(func() {
		retries := backoff.Policy{}
		for n := 1; ; n++ {
			err := s.write(s.ctx, &letter)
			if err == nil {
				s.worker.log.Warn("a delta was written to the dead letters", slog.String("route", s.route.Name), slog.String("delta", m.Delta.String()), slog.Any("err", reason))
				s.settle(number)
				return
			}
			if timer.Sleep(s.ctx, retries.Delay(n)) != nil {
				return
			}
		}
	})
}

// write writes a dead letter to the stream. The same letter has the same id, so that it is stored
// once.
func (s *session) write(ctx context.Context, letter *checkpoint.Letter) error {
	s.mu.Lock()
	number := s.numbers[letter.Delta]
	s.mu.Unlock()
	return deadletters.Write(ctx, s.worker.conn, fmt.Sprintf("%s/%d/%s", letter.Route, number, letter.Sink), *letter)
}

// letters writes the dead letters of a session to the stream, from which the leader takes them.
type letters struct{ session *session }

// Add implements deliver.DeadLetterer. If one cannot be written, all are written again later.
func (l letters) Add(ctx context.Context, all []checkpoint.Letter) error {
	for i := range all {
		if err := l.session.write(ctx, &all[i]); err != nil {
			return err
		}
	}
	return nil
}

// Remove implements deliver.DeadLetterer. The leader removes dead letters.
func (letters) Remove(context.Context, []uint64) (int, error) { return 0, nil }
