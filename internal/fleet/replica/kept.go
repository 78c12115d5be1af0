package replica

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	// keptInterval is the interval at which the leader counts its frames in the stream.
	keptInterval = 10 * time.Second
	keptTimeout  = time.Second
)

// kept is the number of messages with frames that the stream must have. Only Run, which publishes
// and removes frames, uses it.
type kept struct {
	next     time.Time // when they are counted again
	known    bool
	messages uint64
	fewer    bool // fewer were found once
}

// count compares the number of messages in the stream with those that Run knows of. If another
// program has removed some, such as a purge that spares the lead record, a snapshot replaces them:
// a standby that had not read them could not take over after the death of the leader.
func (s *Shipper) count(ctx context.Context) {
	k := &s.kept
	now := time.Now()
	if now.Before(k.next) {
		return
	}
	k.next = now.Add(s.cfg.inspect)
	found, err := s.messages(ctx)
	if err != nil { // the frames that wait say so
		return
	}
	if !k.known {
		k.known, k.messages = true, found
		return
	}
	was := k.fewer
	k.fewer = found < k.messages
	if !k.fewer || !was { // a server that has just become the leader of the stream may lag behind
		return
	}
	s.cfg.Log.Error("fleet: frames of the state file were removed from NATS by another program; a snapshot replaces them",
		"stream", s.cfg.Conn.Names.Cuts(), "messages", k.messages-found)
	k.messages, k.fewer = found, false
	s.mu.Lock()
	s.breakAt(s.newest.Number + 1)
	s.mu.Unlock()
}

// messages returns the number of messages with frames in the stream.
func (s *Shipper) messages(ctx context.Context) (n uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, keptTimeout)
	defer cancel()
	// The lead record has another subject. The total of the stream would count it.
	stream, subject := s.cfg.Conn.Names.Cuts(), s.cfg.Conn.Names.Frame(frameToken)
	request, err := json.Marshal(map[string]string{"subjects_filter": subject})
	if err != nil {
		return 0, err
	}
	reply, err := s.cfg.Conn.NATS.RequestWithContext(ctx, "$JS.API.STREAM.INFO."+stream, request)
	if err != nil {
		return 0, err
	}
	var answer struct {
		State struct {
			Subjects map[string]uint64 `json:"subjects"`
		} `json:"state"`
		Error *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(reply.Data, &answer); err != nil {
		return 0, err
	}
	if answer.Error != nil {
		return 0, fmt.Errorf("stream %s: %w", stream, answer.Error)
	}
	return answer.State.Subjects[subject], nil
}
