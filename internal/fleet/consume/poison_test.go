package consume

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/internal/fleet/owner"
	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/natstest/embedded"
)

// graveyard handles messages at once, except the one that ends its worker.
type graveyard struct {
	mu        sync.Mutex
	deadly    uint64
	died      int
	handled   map[uint64]int
	poisoned  []uint64
	dying     chan struct{} // closed with the next death
	condemned chan struct{} // closed when the deadly message became a dead letter
}

type victim struct {
	*graveyard

	done func(...uint64)
}

// Take implements Handler.
func (v *victim) Take(m *Message, poison bool) (bool, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case poison:
		v.poisoned = append(v.poisoned, m.Sequence)
		close(v.condemned)
	case m.Sequence == v.deadly:
		v.died++
		close(v.dying)
		return false, nil // it is never done
	default:
		v.handled[m.Sequence]++
	}
	v.done(m.Sequence)
	return false, nil
}

// revive lets the next worker die.
func (g *graveyard) revive() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.dying = make(chan struct{})
}

// until waits for a condition that nothing signals.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick, end := time.NewTicker(20*time.Millisecond), time.After(patience)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("not reached: %s", what)
		}
	}
}

// Close implements Handler.
func (*victim) Close() {}

// A message that ends three workers in a row becomes a dead letter, and the ones behind it are
// handled.
func TestPoison(t *testing.T) {
	// Guarantee: workers-poison
	t.Parallel()
	s := embedded.Start(t, nil)
	conn, js := connect(t, s, &gate{})
	defer conn.Close()
	setup(t, js)
	_, err := owner.Announce(t.Context(), owner.KV(bucket(t, js, "own")), "r", "r", "h", 1, nil)
	must.Succeed(t, err)
	const messages = 30 // fewer than pending: all are in hand at each death
	for i := range messages {
		_, err := js.Publish(t.Context(), "w.r.1.0.k"+strconv.Itoa(i%3), nil)
		must.Succeed(t, err)
	}
	g := &graveyard{deadly: 12, handled: map[uint64]int{}, dying: make(chan struct{}), condemned: make(chan struct{})}
	end := time.After(patience)
	for n := 0; len(g.poisoned) == 0; n++ {
		p := &process{name: fmt.Sprint("w", n)}
		p.run(t, s, func(_ context.Context, _ *owner.Lease, done func(...uint64)) (Handler, error) {
			return &victim{g, done}, nil
		})
		select {
		case <-g.dying:
			p.die()
			g.revive()
			continue
		case <-g.condemned:
		case <-end:
			t.Fatal("the message did not become a dead letter")
		}
		until(t, "the stream is empty", func() bool {
			empty, err := Empty(t.Context(), conn, stream, "w.r.1.>")
			must.Succeed(t, err)
			return empty
		})
		p.end()
	}
	if g.died != 3 {
		t.Errorf("%d workers ended, want 3", g.died)
	}
	if len(g.poisoned) != 1 || g.poisoned[0] != g.deadly {
		t.Errorf("dead letters: %v, want message %d", g.poisoned, g.deadly)
	}
	if len(g.handled) != messages-1 {
		t.Errorf("%d messages were handled, want %d", len(g.handled), messages-1)
	}
}
