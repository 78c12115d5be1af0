package values

import (
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// Bounds of one commit. The server's bound is 1,000 messages.
const (
	maxMessages = 900
	maxBytes    = 8 << 20
	// overhead bounds the size of a message without its value.
	overhead = 4 << 10
)

// request is a commit of a call, or a wait for the commits of others.
type request struct {
	writes    []plugins.KVWrite // the last one of each key
	revisions map[string]uint64
	limit     int64
	sync      bool
	done      chan error
}

// finish tells the callers the outcome.
func finish(requests []*request, err error) {
	for _, r := range requests {
		r.done <- err
	}
}

// latest returns the last write of each key: a commit has one record of each.
func latest(writes []plugins.KVWrite) []plugins.KVWrite {
	last := make(map[string]int, len(writes))
	for i := range writes {
		last[writes[i].Key] = i
	}
	if len(last) == len(writes) {
		return writes
	}
	var kept []plugins.KVWrite
	for i := range writes {
		if last[writes[i].Key] == i {
			kept = append(kept, writes[i])
		}
	}
	return kept
}

// bytes returns the approximate size of the messages.
func (r *request) bytes() (n int) {
	for i := range r.writes {
		n += len(r.writes[i].Key) + len(r.writes[i].Value) + 256
	}
	return n
}

// fits refuses writes that NATS does not take.
func (s *store) fits(r *request) error {
	most := int(s.values.conn.NATS.MaxPayload())
	for i := range r.writes {
		if size := len(r.writes[i].Value); most > 0 && size > most-overhead {
			return plugins.Reject(fmt.Errorf("a value has %d bytes: on a worker it may have %d, by max_payload of the NATS servers", size, most-overhead))
		}
	}
	if len(r.writes) > maxMessages || r.bytes() > maxBytes {
		return plugins.Reject(fmt.Errorf("one call writes %d values with %d bytes: on a worker it may write %d with %d", len(r.writes), r.bytes(), maxMessages, maxBytes))
	}
	return nil
}

// batchOf is a commit for several requests, on the condition of a head.
type batchOf struct {
	requests []*request
	messages []*nats.Msg
	seq      uint64
	head     head
	stored   bool // an earlier attempt has stored it

	bytes   int
	writes  []plugins.KVWrite
	touched map[string]bool
}

// judge decides about requests by the mirror. It finishes those that conflict with other commits or
// exceed their limits, and returns the others as one commit; while the mirror is being read it
// takes no writes. before are the requests of an earlier attempt with the identity mine. Without
// them it takes the waiting ones.
func (s *store) judge(before []*request, mine commit) *batchOf {
	m := s.mirror
	m.mu.Lock()
	defer m.mu.Unlock()
	b := &batchOf{seq: m.seq, head: m.head, touched: make(map[string]bool)}
	if m.seq == 0 {
		b.head = head{} // the mirror is being read: expect a new bucket, the server tells otherwise
	}
	if len(before) > 0 && m.seq > 0 && m.head.has(mine) {
		b.requests, b.stored = before, true
		return b
	}
	// A repeated attempt has the same requests, so that its identity stands for them.
	requests := before
	if len(requests) == 0 {
		s.mu.Lock()
		requests, s.waiting = s.waiting, nil
		s.mu.Unlock()
	}
	var later []*request
	for i, r := range requests {
		accepted, err := b.add(s, r)
		if err != nil {
			r.done <- err
		} else if !accepted {
			later = append(later, requests[i])
		}
	}
	if len(later) > 0 { // before those that came meanwhile
		s.mu.Lock()
		s.waiting = append(later, s.waiting...)
		s.mu.Unlock()
	}
	for i := range b.writes {
		b.messages = append(b.messages, s.message(b.writes[i]))
	}
	return b
}

// add adds a request to the commit. It is not accepted if it must wait for the next one.
func (b *batchOf) add(s *store, r *request) (accepted bool, err error) {
	if r.sync {
		b.requests = append(b.requests, r)
		return true, nil
	}
	if b.seq == 0 {
		return false, nil
	}
	// The revision of a key that this commit changes is not known yet: such a request waits for the
	// next commit.
	for key, revision := range r.revisions {
		if _, now, _ := s.mirror.kv.Read(key); now != revision {
			return false, plugins.ErrKVConflict
		}
		if b.touched[key] {
			return false, nil
		}
	}
	size := r.bytes()
	for i := range r.writes {
		if b.touched[r.writes[i].Key] {
			return false, nil
		}
	}
	if len(b.requests) > 0 && (len(b.writes)+len(r.writes) > maxMessages || b.bytes+size > maxBytes) {
		return false, nil
	}
	// A handler above its limit may still make its values smaller.
	all := append(b.writes[:len(b.writes):len(b.writes)], r.writes...)
	if after := s.mirror.kv.SizeAfter(all); after > r.limit && after > s.mirror.kv.SizeAfter(b.writes) {
		return false, plugins.ErrKVFull
	}
	b.writes, b.bytes, b.requests = all, b.bytes+size, append(b.requests, r)
	for i := range r.writes {
		b.touched[r.writes[i].Key] = true
	}
	return true, nil
}
