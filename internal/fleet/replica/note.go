package replica

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/fleet"
	"github.com/deltarouter/deltarouter/internal/fleet/fence"
)

// requestTimeout limits the requests of a follower: a server that has just started may not answer.
const requestTimeout = 3 * time.Second

// note is the note in the lead record of the stream.
type note struct {
	Last     checkpoint.Position `json:"last"`   // the last frame of the stream
	Newest   checkpoint.Position `json:"newest"` // the last frame of the leader's file
	Snapshot *pointer            `json:"snapshot,omitempty"`
	Previous *pointer            `json:"previous,omitempty"` // the snapshot before
}

// pointer points to a snapshot.
type pointer struct {
	Name   string              `json:"name"`
	At     checkpoint.Position `json:"at"`  // the snapshot has this frame, and maybe later ones
	Seq    uint64              `json:"seq"` // the frames after At are behind it in the stream
	Size   uint64              `json:"size"`
	Digest string              `json:"digest"`
}

// closes reports whether a file with the snapshot gets past a message of the stream that cannot be
// applied: next is the number of its frame; 0: it is damaged.
func (p *pointer) closes(at, next uint64) bool {
	return p.Seq >= at || next > 0 && p.At.Number+1 >= next
}

// oldest returns the sequence behind which the stream has all frames.
func (n *note) oldest() uint64 {
	if n.Previous != nil {
		return n.Previous.Seq
	}
	if n.Snapshot != nil {
		return n.Snapshot.Seq
	}
	return 0
}

func (n *note) encode() []byte {
	text, err := json.Marshal(n)
	if err != nil {
		return nil // it has numbers and texts only
	}
	return text
}

// parseNote reads the note of a lead record. One that is no note counts as an empty one: the leader
// then makes a snapshot.
func parseNote(text []byte) (n note) {
	if json.Unmarshal(text, &n) != nil {
		return note{}
	}
	return n
}

// Note returns the note of the present lead record of the stream CUTS, for the first lead record of
// the next leader: followers find the snapshot in it. It is empty in a new stream, and if the
// record is not of the fleet, see [fleet.Keys]: then the leader makes a snapshot.
func Note(ctx context.Context, conn *fleet.Conn) ([]byte, error) {
	record, err := lead(ctx, conn)
	if foreign(err) {
		conn.Refuse(fleet.RefusedLead, err)
		return nil, nil
	}
	return record.Note, err
}

// foreign reports whether a message is not of the fleet, by its signature.
func foreign(err error) bool {
	return errors.Is(err, fleet.ErrUnsigned) || errors.Is(err, fleet.ErrOtherKey)
}

// lead reads the lead record; the zero record: there is none yet.
func lead(ctx context.Context, conn *fleet.Conn) (record fence.Record, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	stream, err := conn.JS.Stream(ctx, conn.Names.Cuts())
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return fence.Record{}, nil
	}
	if err == nil {
		var m *jetstream.RawStreamMsg
		m, err = stream.GetLastMsgForSubject(ctx, conn.Names.CutsLead())
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return fence.Record{}, nil
		}
		if err == nil {
			record, err = fence.Parse(conn.Members, conn.Names.CutsLead(), m.Header, m.Data)
		}
	}
	if err != nil {
		return fence.Record{}, fmt.Errorf("the lead record of stream %s: %w", conn.Names.Cuts(), err)
	}
	return record, nil
}
