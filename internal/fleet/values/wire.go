package values

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/deltarouter/deltarouter/internal/kv"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// Headers of JetStream's atomic batches, which nats.go does not have yet.
const (
	batchHeader    = "Nats-Batch-Id"
	sequenceHeader = "Nats-Batch-Sequence"
	commitHeader   = "Nats-Batch-Commit"
	subjectHeader  = "Nats-Expected-Last-Subject-Sequence-Subject"
)

const (
	// wrongSequence is JetStream's number of the error that the head is another one.
	wrongSequence = 10071
	// recentWriters is the number of writers in a head.
	recentWriters = 16
	// markerTTL is the time for which the server keeps the removal of a value. A mirror that was
	// confirmed less than staleAfter ago has seen all removals.
	markerTTL  = 72 * time.Hour
	staleAfter = 24 * time.Hour
	// expiryDelay is the time for which the server keeps an expired value. Workers remove it from
	// their mirrors by their own clocks.
	expiryDelay = time.Minute
)

// head is the body of the last record of a commit.
type head struct {
	Count  int      `json:"count"`  // of the values in front of it
	Recent []commit `json:"recent"` // the last commits of the last writers, the newest first
}

// commit identifies a commit.
type commit struct {
	Writer string `json:"writer"`
	Number uint64 `json:"number"`
}

// with returns the head of the next commit.
func (h head) with(c commit, count int) head {
	next := head{Count: count, Recent: []commit{c}}
	for _, other := range h.Recent {
		if other.Writer != c.Writer && len(next.Recent) < recentWriters {
			next.Recent = append(next.Recent, other)
		}
	}
	return next
}

// has reports whether the commit is the last one of its writer.
func (h head) has(c commit) bool {
	for _, other := range h.Recent {
		if other == c {
			return true
		}
	}
	return false
}

// Kinds of a value's body, its first byte.
const (
	kindSet    = 's'
	kindDelete = 'd'
)

// message returns the record of a write.
func (s *store) message(w plugins.KVWrite) *nats.Msg {
	body := []byte{kindSet}
	header := nats.Header{}
	if w.Delete {
		body[0] = kindDelete
		header[jetstream.MsgTTLHeader] = []string{markerTTL.String()}
	}
	body = binary.AppendUvarint(body, uint64(len(w.Key)))
	body = append(body, w.Key...)
	if !w.Delete {
		expires := uint64(0)
		if !w.Expires.IsZero() {
			expires = uint64(w.Expires.UnixNano()) //nolint:gosec // read back as it was
			left := max(w.Expires.Sub(s.clock.Now()), 0) + expiryDelay
			header[jetstream.MsgTTLHeader] = []string{strconv.Itoa(int(left/time.Second)) + "s"}
		}
		body = binary.AppendUvarint(body, expires)
		body = append(body, w.Value...)
	}
	sum := sha256.Sum256([]byte(w.Key))
	return &nats.Msg{Subject: s.prefix + "v." + base64.RawURLEncoding.EncodeToString(sum[:]), Data: body, Header: header}
}

// parse decodes the body of a value.
func parse(body []byte, seq uint64) (kv.Change, error) {
	if len(body) == 0 || body[0] != kindSet && body[0] != kindDelete {
		return kv.Change{}, errors.New("it is of another kind: a newer version has written it")
	}
	c := kv.Change{Revision: seq}
	c.Delete = body[0] == kindDelete
	size, n := binary.Uvarint(body[1:])
	rest := body[1+max(n, 0):]
	if n <= 0 || size > uint64(len(rest)) {
		return kv.Change{}, errors.New("it is truncated")
	}
	c.Key, rest = string(rest[:size]), rest[size:]
	if c.Delete {
		return c, nil
	}
	expires, n := binary.Uvarint(rest)
	if n <= 0 {
		return kv.Change{}, errors.New("it is truncated")
	}
	if expires > 0 {
		c.Expires = time.Unix(0, int64(expires)) //nolint:gosec // it was one
	}
	c.Value = rest[n:]
	return c, nil
}

// wrongHead is the error that the head is another one than expected: the last one of the server.
type wrongHead struct{ seq uint64 }

func (e *wrongHead) Error() string { return fmt.Sprintf("the head is %d", e.seq) }

// publish makes one attempt to store messages and the head behind them, if the last head is the
// expected one. It returns the sequence of the new head. The error is a wrongHead, or the outcome
// is unknown.
func (s *store) publish(ctx context.Context, messages []*nats.Msg, h head, expected uint64) (uint64, error) {
	body, err := json.Marshal(h)
	if err != nil {
		return 0, err
	}
	end := &nats.Msg{Subject: s.mirror.subject, Data: body, Header: nats.Header{}}
	first := end
	if len(messages) > 0 {
		first = messages[0]
	}
	first.Header[jetstream.ExpectedLastSubjSeqHeader] = []string{strconv.FormatUint(expected, 10)}
	first.Header[subjectHeader] = []string{s.mirror.subject}
	if len(messages) > 0 {
		id := nuid.Next() // a new one for each attempt: the server may keep parts of the one before
		for i, m := range append(messages, end) {
			m.Header[batchHeader] = []string{id}
			m.Header[sequenceHeader] = []string{strconv.Itoa(i + 1)}
		}
		end.Header[commitHeader] = []string{"1"}
	}
	for _, m := range messages {
		if err := s.values.conn.NATS.PublishMsg(m); err != nil {
			return 0, err
		}
	}
	return s.request(ctx, end)
}

func (s *store) request(ctx context.Context, m *nats.Msg) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	reply, err := s.values.conn.NATS.RequestMsgWithContext(ctx, m)
	if err != nil {
		return 0, err
	}
	var answer struct {
		Seq   uint64 `json:"seq"`
		Error *struct {
			Code int    `json:"err_code"`
			Text string `json:"description"`
		} `json:"error"`
	}
	if err := json.Unmarshal(reply.Data, &answer); err != nil {
		return 0, fmt.Errorf("the answer of NATS is no JSON: %w", err)
	}
	// Only this refusal has a known outcome, and the number is in the text alone.
	if e := answer.Error; e != nil {
		var last uint64
		if e.Code == wrongSequence {
			if n, _ := fmt.Sscanf(e.Text, "wrong last sequence: %d", &last); n == 1 {
				return 0, &wrongHead{last}
			}
		}
		return 0, fmt.Errorf("NATS answers: %s (%d)", e.Text, e.Code)
	}
	if answer.Seq == 0 {
		return 0, errors.New("the answer of NATS has no sequence")
	}
	return answer.Seq, nil
}
