package values

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nuid"

	"github.com/deltarouter/deltarouter/internal/backoff"
	"github.com/deltarouter/deltarouter/internal/fleet"
	"github.com/deltarouter/deltarouter/internal/kv"
	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

const (
	// attempt is the time limit of one request.
	attempt = 2 * time.Second
	// patience is the time limit of a commit. The call is retried afterwards.
	patience = 15 * time.Second
)

var errUnreachable = errors.New("the kv cannot be written to NATS; the call is repeated")

// store is the kv of a handler. The caller that has the turn commits for all that wait.
type store struct {
	values  *Values
	handler string
	clock   timer.Clock
	prefix  string // of the subjects of the handler
	mirror  *mirror
	writer  string
	turn    chan struct{} // holds a token while a caller uses the fields below

	number    uint64    // of the last commit
	confirmed time.Time // time at which the mirror was known to be current

	mu      sync.Mutex
	waiting []*request
}

var _ plugins.SharedKV = (*store)(nil)

func newStore(v *Values, handler string) *store {
	prefix := "$KV." + v.conn.Names.Values() + "." + fleet.Token(handler) + "."
	return &store{
		values: v, handler: handler, clock: v.clock, prefix: prefix, writer: nuid.Next(), turn: make(chan struct{}, 1),
		mirror: &mirror{
			conn: v.conn, handler: handler, filter: prefix + ">", subject: prefix + "h",
			kv: kv.New(v.clock, false), changed: make(chan struct{}),
		},
	}
}

// Get implements plugins.KV.
func (s *store) Get(key string) ([]byte, bool) { return s.mirror.kv.Get(key) }

// Read implements plugins.SharedKV.
func (s *store) Read(key string) (value []byte, revision uint64, ok bool) {
	return s.mirror.kv.Read(key)
}

// Size implements plugins.KV.
func (s *store) Size() int64 { return s.mirror.kv.Size() }

// Commit implements plugins.KV.
func (s *store) Commit(writes []plugins.KVWrite, limit int64) error {
	return s.CommitIf(writes, nil, limit)
}

// CommitIf implements plugins.SharedKV.
func (s *store) CommitIf(writes []plugins.KVWrite, revisions map[string]uint64, limit int64) error {
	r := &request{writes: latest(writes), revisions: revisions, limit: limit, done: make(chan error, 1)}
	if err := s.fits(r); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(s.values.ctx, patience)
	defer cancel()
	if err := s.do(ctx, r); errors.Is(err, plugins.ErrKVFull) {
		return err
	} else if err != nil {
		return plugins.Postpone(err, 0)
	}
	return nil
}

// sync waits until the mirror has all commits that were made before the call.
func (s *store) sync(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(s.values.ctx, cancel) //nolint:contextcheck // with the mirrors the wait ends, too
	defer stop()
	return s.do(ctx, &request{sync: true, done: make(chan error, 1)})
}

// do waits for the outcome of a request, and commits for all when it is its turn.
func (s *store) do(ctx context.Context, r *request) error {
	s.mu.Lock()
	s.waiting = append(s.waiting, r)
	s.mu.Unlock()
	for {
		select {
		case err := <-r.done:
			return err
		case <-ctx.Done():
			if s.withdraw(r) {
				return fmt.Errorf("%w: %w", errUnreachable, context.Cause(ctx))
			}
			return <-r.done // another caller is about to commit it
		case s.turn <- struct{}{}:
			s.round(ctx)
			<-s.turn
		}
	}
}

// withdraw removes a request that is not being committed.
func (s *store) withdraw(r *request) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, other := range s.waiting {
		if other == r {
			s.waiting = append(s.waiting[:i:i], s.waiting[i+1:]...)
			return true
		}
	}
	return false
}

// round commits the waiting requests as one commit, and finishes them. If the mirror is being read,
// it commits the head alone first, which tells when the mirror is complete. The caller has the
// turn.
func (s *store) round(ctx context.Context) {
	wait := &backoff.Series{Policy: backoff.Policy{Min: 5 * time.Millisecond, Max: time.Second}}
	var batch []*request
	// All attempts have one identity: an attempt without an answer is found in the head by it, and
	// is not stored twice.
	s.number++
	mine := commit{s.writer, s.number}
	for {
		b := s.judge(batch, mine)
		if batch = b.requests; b.stored || len(batch) == 0 && b.seq > 0 {
			finish(batch, nil)
			return
		}
		err := s.try(ctx, b, mine)
		if err == nil {
			s.confirmed = s.clock.Now()
			finish(batch, nil)
			return
		}
		// Another writer was faster, and the mirror has its commit: no long pause is needed.
		if _, ok := errors.AsType[*wrongHead](err); ok {
			wait.Reset()
		}
		if wait.Wait(ctx, 0) != nil {
			finish(batch, fmt.Errorf("%w: %w", errUnreachable, err))
			return
		}
	}
}

// try makes one attempt to store a batch, and waits until the mirror has it. After a wrongHead it
// waits until the mirror has that head.
func (s *store) try(ctx context.Context, b *batchOf, mine commit) error {
	if b.seq > 0 && !s.confirmed.IsZero() && s.clock.Now().Sub(s.confirmed) > staleAfter {
		s.confirmed = time.Time{}
		s.mirror.reload()
		return errors.New("the mirror is read again")
	}
	seq, err := s.publish(ctx, b.messages, b.head.with(mine, len(b.messages)), b.seq)
	if err == nil {
		return s.mirror.wait(ctx, seq)
	}
	wrong, ok := errors.AsType[*wrongHead](err)
	if !ok {
		return err
	}
	if wrong.seq < b.seq {
		s.values.log.Error("fleet: the values of a handler are gone: the bucket was purged, or deleted and made again", "handler", s.handler,
			"bucket", s.values.conn.Names.Values())
		s.mirror.reload()
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	_ = s.mirror.wait(bounded, wrong.seq)
	return err
}
