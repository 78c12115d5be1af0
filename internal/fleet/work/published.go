package work

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/deltarouter/deltarouter/internal/fleet"
)

const (
	// publishedTime is the time for which a new leader knows the events of the leader before. It
	// covers the deltas of which the checkpoint does not say yet that they were published.
	publishedTime = 2 * time.Minute
	// readAttempts bounds the attempts to read a list that is complete.
	readAttempts = 20
)

// published is the memory of the events that were published, in the stream itself: the last message
// of each batch before the lead record has the hashes of its events. A new leader, whose checkpoint
// is older than the last batches of the leader before, reads them and publishes these events no
// second time.
//
// The stream keeps the lists of the last [fleet.WorkLists] batches, each under a subject of its
// own. Compared with a Nats-Msg-Id on each message, the servers keep nothing in memory, and a batch
// with a known event is not refused whole.
type published struct {
	number uint64              // of the last batch
	known  map[uint64]struct{} // from the leader before
	until  time.Time           // after that, known does not count any more
}

// fingerprint returns the hash of an event, 0 for one that may be published again.
func (it *item) fingerprint() uint64 {
	if it.again {
		return 0
	}
	h := fnv.New64a()
	for _, text := range []string{it.id.route, "\x00", it.id.target, "\x00", it.id.event} {
		_, _ = h.Write([]byte(text))
	}
	return max(h.Sum64(), 1)
}

// has reports whether the leader before has published the event.
func (p *published) has(it *item) bool {
	if p.known == nil {
		return false
	}
	if time.Now().After(p.until) {
		p.known = nil
		return false
	}
	_, known := p.known[it.fingerprint()]
	return known
}

// list returns the list of the next batch, and the note of its lead record.
func (p *published) list(conn *fleet.Conn, items []*item) (m *nats.Msg, note []byte) {
	p.number++
	note = binary.BigEndian.AppendUint64(nil, p.number)
	body := append(make([]byte, 0, 8*(len(items)+1)), note...)
	for _, it := range items {
		if f := it.fingerprint(); f != 0 {
			body = binary.BigEndian.AppendUint64(body, f)
		}
	}
	header, subject := nats.Header{nats.MsgRollup: {nats.MsgRollupSubject}}, fleet.WorkList(conn.Names, p.number)
	if mac := conn.Members.Sign(fleet.PurposeList, subject, "", body); mac != "" {
		header[fleet.MACHeader] = []string{mac}
	}
	return &nats.Msg{Subject: subject, Data: body, Header: header}, note
}

// read reads the lists that the leader before has left. note is that of its last lead record.
func (p *published) read(ctx context.Context, conn *fleet.Conn, note []byte) error {
	*p = published{known: make(map[uint64]struct{}), until: time.Now().Add(publishedTime)}
	if len(note) != 8 && conn.Members == nil {
		return nil // a new stream
	}
	if len(note) != 8 { // or a record that was not of the fleet, which replaced the last one
		var err error
		p.number, err = p.readOnce(ctx, conn)
		return err
	}
	p.number = binary.BigEndian.Uint64(note)
	var err error
	for range readAttempts {
		var last uint64
		if last, err = p.readOnce(ctx, conn); err == nil && last >= p.number {
			return nil
		}
		if err == nil { // the server that answered is behind
			err = fmt.Errorf("the list of batch %d is missing", p.number)
		}
		if pause(ctx, 100*time.Millisecond); ctx.Err() != nil {
			break
		}
	}
	return fmt.Errorf("read the events that the leader before has published: %w", err)
}

// readOnce reads the lists once, and returns the number of the last one.
func (p *published) readOnce(ctx context.Context, conn *fleet.Conn) (last uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, stuckAfter)
	defer cancel()
	inbox := conn.NATS.NewInbox()
	answers, err := conn.NATS.SubscribeSync(inbox)
	if err != nil {
		return 0, err
	}
	defer func() { _ = answers.Unsubscribe() }()
	// A server answers a request with several messages, up to the size of a batch.
	for seq := uint64(1); ; {
		request, err := json.Marshal(map[string]any{"seq": seq, "batch": fleet.WorkLists, "next_by_subj": fleet.WorkListFilter(conn.Names)})
		if err != nil {
			return 0, err
		}
		if err := conn.NATS.PublishRequest("$JS.API.DIRECT.GET."+conn.Names.Work(), inbox, request); err != nil {
			return 0, err
		}
		for {
			m, err := answers.NextMsgWithContext(ctx)
			if err != nil {
				return 0, err
			}
			if status := m.Header.Get("Status"); status == "404" || status == "204" && m.Header.Get("Nats-Num-Pending") == "0" {
				return last, nil
			} else if status == "204" {
				break // there are more
			} else if status != "" {
				return 0, errors.New("the server answers " + status + " " + m.Header.Get("Description"))
			}
			at, err := strconv.ParseUint(m.Header.Get("Nats-Sequence"), 10, 64)
			if err != nil {
				return 0, fmt.Errorf("an answer without sequence: %w", err)
			}
			seq, last = at+1, max(last, p.add(conn, m))
		}
	}
}

// add adds the events of a list, unless it is old, and returns its number.
func (p *published) add(conn *fleet.Conn, m *nats.Msg) (number uint64) {
	if len(m.Data) < 8 {
		return 0
	}
	subject := fleet.WorkList(conn.Names, binary.BigEndian.Uint64(m.Data))
	if err := conn.Members.Verify(m.Header.Get(fleet.MACHeader), fleet.PurposeList, subject, "", m.Data); err != nil {
		conn.Refuse(fleet.RefusedList, fmt.Errorf("the list of the events of a batch: %w", err))
		return 0
	}
	made, err := time.Parse(time.RFC3339Nano, m.Header.Get("Nats-Time-Stamp"))
	if err == nil && time.Since(made) < publishedTime {
		for b := m.Data[8:]; len(b) >= 8; b = b[8:] {
			p.known[binary.BigEndian.Uint64(b)] = struct{}{}
		}
	}
	return binary.BigEndian.Uint64(m.Data)
}
