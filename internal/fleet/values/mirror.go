package values

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltarouter/deltarouter/internal/backoff"
	"github.com/deltarouter/deltarouter/internal/fleet"
	"github.com/deltarouter/deltarouter/internal/kv"
)

const (
	pullExpiry    = 10 * time.Second
	pullHeartbeat = time.Second // a consumer whose server has died is noticed after two of them
)

// mirror has the values of a handler as of a head. It follows the stream of the bucket.
//
// The stream has the last record of each subject only. When a later commit replaces a part of an
// earlier one, a mirror may receive the head of the earlier one without that part. It waits for the
// later head then, which has the rest.
type mirror struct {
	conn    *fleet.Conn
	handler string
	filter  string // the subjects of the handler
	subject string // of the head
	kv      *kv.Store

	mu      sync.Mutex
	seq     uint64 // of the head; 0: the mirror is not complete
	head    head
	changed chan struct{} // closed at the next head
	cancel  context.CancelFunc

	// of the goroutine of run
	pending []kv.Change // behind the head
	seqs    []uint64    // of pending
	fresh   bool        // pending replaces everything
}

// complete reports whether the mirror has a head.
func (m *mirror) complete() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.seq > 0
}

// reload reads everything again.
func (m *mirror) reload() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seq = 0
	if m.cancel != nil {
		m.cancel()
	}
}

// wait waits until the mirror has the head seq or a later one.
func (m *mirror) wait(ctx context.Context, seq uint64) error {
	for {
		m.mu.Lock()
		now, changed := m.seq, m.changed
		m.mu.Unlock()
		if now >= seq && now > 0 {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// run follows the stream until ctx ends.
func (m *mirror) run(ctx context.Context) {
	wait := &backoff.Series{Policy: backoff.Policy{Min: 100 * time.Millisecond, Max: 10 * time.Second}}
	for ctx.Err() == nil {
		err := m.follow(ctx, wait.Reset)
		if ctx.Err() != nil {
			return
		}
		if !errors.Is(err, context.Canceled) {
			m.conn.Complaints.Say(slog.LevelWarn, "fleet: the kv of a handler cannot be followed, trying again", err, slog.String("handler", m.handler))
		}
		_ = wait.Wait(ctx, 0) // the error is ctx's
	}
}

// follow reads everything, and then all changes, until an error or reload.
func (m *mirror) follow(ctx context.Context, done func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	m.mu.Lock()
	m.seq, m.cancel = 0, cancel
	m.mu.Unlock()
	// The first commit replaces the content: until then readers have the former one.
	m.pending, m.seqs, m.fresh = nil, nil, true
	consumer, err := m.conn.JS.OrderedConsumer(ctx, "KV_"+m.conn.Names.Values(), jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{m.filter}, DeliverPolicy: jetstream.DeliverAllPolicy, InactiveThreshold: time.Minute,
	})
	if err != nil {
		return err
	}
	messages, err := consumer.Messages(jetstream.PullExpiry(pullExpiry), jetstream.PullHeartbeat(pullHeartbeat))
	if err != nil {
		return err
	}
	defer messages.Stop()
	stop := context.AfterFunc(ctx, messages.Stop)
	defer stop()
	for {
		message, err := messages.Next()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if errors.Is(err, jetstream.ErrNoHeartbeat) {
			continue // nats.go makes the consumer again
		}
		if err != nil {
			return err
		}
		if err := m.take(message); err != nil {
			return err
		}
		done()
	}
}

// take takes a record of the stream.
func (m *mirror) take(message jetstream.Msg) error {
	meta, err := message.Metadata()
	if err != nil {
		return err
	}
	seq := meta.Sequence.Stream
	if message.Subject() != m.subject {
		change, err := parse(message.Data(), seq)
		if err != nil {
			return fmt.Errorf("sequence %d of the bucket %s: %w", seq, m.conn.Names.Values(), err)
		}
		m.pending, m.seqs = append(m.pending, change), append(m.seqs, seq)
		return nil
	}
	// The head ends a commit: all its values become visible at once.
	var h head
	if err := json.Unmarshal(message.Data(), &h); err != nil {
		return fmt.Errorf("sequence %d of the bucket %s: %w", seq, m.conn.Names.Values(), err)
	}
	if !m.whole(seq, h.Count) {
		return nil // a later commit has replaced a part of this one
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.kv.Apply(m.pending, m.fresh)
	m.pending, m.seqs, m.fresh = nil, nil, false
	m.seq, m.head = seq, h
	close(m.changed)
	m.changed = make(chan struct{})
	return nil
}

// whole reports whether all count values of the head seq are pending.
func (m *mirror) whole(seq uint64, count int) bool {
	n := len(m.seqs)
	if n < count {
		return false
	}
	for i := range count {
		if m.seqs[n-1-i] != seq-1-uint64(i) {
			return false
		}
	}
	return true
}
