package consume

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// hand is the messages that a session has in hand, and those that are done and whose
// acknowledgements are not confirmed. It is safe for concurrent use.
type hand struct {
	nats     *nats.Conn
	interval time.Duration // of signs of life
	again    time.Duration // after which an acknowledgement is sent again
	inbox    string
	sub      *nats.Subscription

	mu      sync.Mutex
	all     map[uint64]*held
	high    uint64 // the highest sequence taken
	inHand  int
	changed chan struct{} // closed with the next change that ends something
	waited  bool
	closed  bool
}

// held is a message in hand or done.
type held struct {
	reply string
	done  bool
	since time.Time // taken or told to the server
}

var (
	ack        = []byte("+ACK")
	inProgress = []byte("+WPI")
)

// ackAgain is the time after which an acknowledgement without an answer is sent again.
const ackAgain = 2 * time.Second

func newHand(conn *nats.Conn, ackWait time.Duration) (*hand, error) {
	h := &hand{
		nats: conn, interval: ackWait / 3, again: min(ackAgain, ackWait/4), inbox: conn.NewInbox(), all: map[uint64]*held{}, changed: make(chan struct{}),
	}
	var err error
	h.sub, err = conn.Subscribe(h.inbox+".*", h.confirm)
	return h, err
}

func (h *hand) close() {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	_ = h.sub.Unsubscribe()
}

// take puts a message in hand. It returns false if it is in hand or done already. All messages up
// to high came in order, so one of them that is not known is done, and its acknowledgement was
// confirmed.
func (h *hand) take(sequence uint64, reply string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	e := h.all[sequence]
	if e == nil && sequence > h.high {
		h.high = sequence
		h.all[sequence] = &held{reply: reply, since: time.Now()}
		h.inHand++
		return true
	}
	if e == nil { // it is done, and is acknowledged once more
		e = &held{done: true, since: time.Now()}
		h.all[sequence] = e
	}
	e.reply = reply // of the last delivery
	if e.done {
		h.ack(sequence, reply)
	}
	return false
}

// forget drops messages that were not handled.
func (h *hand) forget(sequences ...uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, n := range sequences {
		if e := h.all[n]; e != nil && !e.done {
			delete(h.all, n)
			h.inHand--
		}
	}
	h.signal()
}

// done acknowledges messages.
func (h *hand) done(sequences ...uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, n := range sequences {
		e := h.all[n]
		if e == nil || e.done {
			continue
		}
		e.done, e.since = true, time.Now()
		h.inHand--
		h.ack(n, e.reply)
	}
	h.signal()
}

// ack sends an acknowledgement that the server confirms. The lock is held.
func (h *hand) ack(sequence uint64, reply string) {
	if !h.closed {
		_ = h.nats.PublishRequest(reply, h.inbox+"."+strconv.FormatUint(sequence, 10), ack) // otherwise it is sent again
	}
}

// confirm handles the answer of the server to an acknowledgement.
func (h *hand) confirm(m *nats.Msg) {
	if m.Header.Get("Status") != "" {
		return // no server has received the acknowledgement
	}
	sequence, err := strconv.ParseUint(m.Subject[len(h.inbox)+1:], 10, 64)
	h.mu.Lock()
	defer h.mu.Unlock()
	if e := h.all[sequence]; err == nil && e != nil && e.done {
		delete(h.all, sequence)
		h.signal()
	}
}

// keep tells the server that the messages in hand are in progress, and repeats acknowledgements
// without an answer.
func (h *hand) keep() {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	for n, e := range h.all {
		if h.closed || now.Sub(e.since) < h.again {
			continue
		}
		if e.done {
			h.ack(n, e.reply)
		} else {
			_ = h.nats.Publish(e.reply, inProgress)
		}
		e.since = now
	}
}

// signal wakes the waiting. The lock is held.
func (h *hand) signal() {
	if h.waited {
		close(h.changed)
		h.changed, h.waited = make(chan struct{}), false
	}
}

func (h *hand) empty() bool { return h.inHand == 0 }

func (h *hand) confirmed() bool { return len(h.all) == 0 }

// open returns the number of messages in hand.
func (h *hand) open() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.inHand
}

// oldest returns the lowest sequence in hand; 0: nothing is in hand.
func (h *hand) oldest() (lowest uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for n, e := range h.all {
		if !e.done && (lowest == 0 || n < lowest) {
			lowest = n
		}
	}
	return lowest
}

// wait waits until a condition holds, which is asked under the lock, and keeps the messages in hand
// in the meantime. It returns false if ctx ends or stop is closed before.
func (h *hand) wait(ctx context.Context, stop <-chan struct{}, ok func() bool) bool {
	keep := time.NewTicker(min(h.interval, h.again)) // acknowledgements are repeated meanwhile
	defer keep.Stop()
	for {
		h.mu.Lock()
		now, changed := ok(), h.changed
		h.waited = true
		h.mu.Unlock()
		if now {
			return true
		}
		select {
		case <-changed:
		case <-keep.C:
			h.keep()
		case <-stop:
			return false
		case <-ctx.Done():
			return false
		}
	}
}
