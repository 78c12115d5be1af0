package consume

import (
	"context"
	"strconv"
	"sync"
	"testing"

	"github.com/deltarouter/deltarouter/internal/fleet/owner"
	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/natstest/embedded"
)

// assembler handles messages with parts: the body of a part is "more", that of the last one is not.
type assembler struct {
	mu       sync.Mutex
	complete []int // numbers of parts
	parts    []uint64
	done     func(...uint64)
}

// Take implements Handler.
func (a *assembler) Take(m *Message, _ bool) (more bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.parts = append(a.parts, m.Sequence)
	if string(m.Data) == "more" {
		return true, nil
	}
	a.complete = append(a.complete, len(a.parts))
	a.done(a.parts...)
	a.parts = nil
	return false, nil
}

// Close implements Handler.
func (*assembler) Close() {}

func (a *assembler) messages() int { a.mu.Lock(); defer a.mu.Unlock(); return len(a.complete) }

// A message with more parts than the server sends without an acknowledgement is handled, and the
// bound of the others is as before.
func TestManyParts(t *testing.T) {
	t.Parallel()
	s := embedded.Start(t, nil)
	conn, js := connect(t, s, &gate{})
	defer conn.Close()
	setup(t, js)
	_, err := owner.Announce(t.Context(), owner.KV(bucket(t, js, "own")), "r", "r", "h", 1, nil)
	must.Succeed(t, err)
	sizes := []int{1, pending - 1, pending, pending + 1, 3*pending + 7, 1, 999, 2}
	for i, parts := range sizes {
		for n := range parts {
			body := "more"
			if n == parts-1 {
				body = "end"
			}
			_, err := js.Publish(t.Context(), "w.r.1.0.k"+strconv.Itoa(i), []byte(body))
			must.Succeed(t, err)
		}
	}
	a := &assembler{}
	p := &process{name: "w"}
	p.run(t, s, func(_ context.Context, _ *owner.Lease, done func(...uint64)) (Handler, error) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.parts, a.done = nil, done
		return a, nil
	})
	until(t, "all messages are complete", func() bool { return a.messages() == len(sizes) })
	for i, want := range sizes {
		if a.complete[i] != want {
			t.Errorf("message %d has %d parts, want %d", i, a.complete[i], want)
		}
	}
	until(t, "the window is as before", func() bool {
		w, err := js.Stream(t.Context(), stream)
		must.Succeed(t, err)
		all := w.ListConsumers(t.Context())
		for c := range all.Info() {
			return c.Config.MaxAckPending == pending && c.NumAckPending == 0
		}
		return false
	})
	p.end()
}
