package fleet

import (
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// Refusals counts the messages and requests that a process has refused, because they may not be of
// its fleet. It is safe for concurrent use.
type Refusals struct {
	mu     sync.Mutex
	counts map[string]uint64
	last   time.Time
	reason string // of the last one
}

// recent is the time for which the status shows a refusal.
const recent = time.Hour

// The kinds of refusals.
const (
	RefusedReply = "reply"      // a request whose answer would go elsewhere than to an inbox
	RefusedLead  = PurposeLead  // a lead record
	RefusedFrame = PurposeFrame // a part of a frame of the state file
	RefusedList  = PurposeList  // the list of the events of a batch

	RefusedDelta  = PurposeDelta  // a delta for a worker
	RefusedLetter = PurposeLetter // a dead letter of a worker
)

// RefusedKinds returns all kinds.
func RefusedKinds() []string {
	return []string{RefusedReply, RefusedLead, RefusedFrame, RefusedList, RefusedDelta, RefusedLetter}
}

// Count returns how many of a kind were refused since the start of the process.
func (r *Refusals) Count(kind string) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counts[kind]
}

// Recent returns the reason of the last refusal, if it is less than an hour old at now; empty:
// there was none.
func (r *Refusals) Recent(now time.Time) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last.IsZero() || now.Sub(r.last) > recent {
		return ""
	}
	return fmt.Sprintf("something in NATS was refused at %s, because no process of the fleet has made it: %s; find out who has credentials of its users",
		r.last.UTC().Format(time.RFC3339), r.reason)
}

func (r *Refusals) add(kind, reason string, now time.Time) (count uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last, r.reason = now, reason
	if r.counts == nil {
		r.counts = make(map[string]uint64)
	}
	r.counts[kind]++
	return r.counts[kind]
}

// Refuse counts something that is refused, and logs it at most once a minute for each kind. reason
// has no content of messages.
func (c *Conn) Refuse(kind string, reason error, about ...slog.Attr) {
	now := time.Now()
	count := c.Refused.add(kind, reason.Error(), now)
	if !c.Complaints.May("refused "+kind, now) {
		return
	}
	attrs := []any{slog.String("kind", kind), slog.Uint64("count", count), slog.Any("err", reason)}
	for _, a := range about {
		attrs = append(attrs, a)
	}
	c.log.Error("fleet: something in NATS was refused, because no process of the fleet has made it: find out who has credentials of its users", attrs...)
}
