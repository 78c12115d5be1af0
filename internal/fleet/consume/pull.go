package consume

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/deltarouter/deltarouter/internal/fleet/owner"
)

const (
	// carefulAfter is the number of owners in a row that ended with a partition, after which its
	// messages are handled one by one.
	carefulAfter = 2
	// pullExpires is how long a pull waits for messages.
	pullExpires = 5 * time.Second
	// heartbeat is the interval of signs of life while a pull waits.
	heartbeat = time.Second
	// silence is how long the server may say nothing before a new pull is sent.
	silence = 3 * heartbeat
)

// The codes of status messages.
const (
	statusHeartbeat = "100"
	statusNobody    = "503"
)

// pullRequest asks a consumer for messages.
type pullRequest struct {
	Batch     int           `json:"batch"`
	Expires   time.Duration `json:"expires"`
	Heartbeat time.Duration `json:"idle_heartbeat"`
}

// run keeps one pull open and takes its messages.
func (s *session) run(ctx context.Context) reason {
	subject := "$JS.API.CONSUMER.MSG.NEXT." + s.Stream + "." + s.name
	request, err := json.Marshal(pullRequest{s.Pending, pullExpires, heartbeat})
	if err != nil {
		return lost
	}
	for {
		s.pulls++
		inbox := s.inbox + "." + strconv.Itoa(s.pulls)
		if err := s.NATS.PublishRequest(subject, inbox, request); err != nil {
			s.sleep(ctx, retryPause) // not connected
		}
		if why, ended := s.receive(ctx, inbox); ended {
			return why
		}
	}
}

// receive takes the messages of a pull. It returns false if the next pull is to be sent.
func (s *session) receive(ctx context.Context, inbox string) (why reason, ended bool) {
	quiet := time.NewTimer(silence)
	defer quiet.Stop()
	for got := 0; got < s.Pending; {
		var m *nats.Msg
		select {
		case <-ctx.Done():
			return lost, true
		case <-s.lease.Released():
			return released, true
		case <-s.keep.C:
			s.hand.keep()
			continue
		case <-quiet.C:
			// after a broken connection nothing else may show a message that was lost with it
			return gap, s.missed(ctx)
		case m = <-s.messages:
		}
		quiet.Reset(silence)
		if code := m.Header.Get("Status"); code != "" && len(m.Data) == 0 && !strings.HasPrefix(m.Reply, "$JS.ACK.") {
			if m.Subject != inbox || code == statusHeartbeat {
				continue // of an earlier pull
			}
			return s.status(ctx, code, m.Header.Get("Description"))
		}
		got++
		if why, ended := s.take(ctx, m); ended {
			return why, true
		}
	}
	return 0, false
}

const onTheWay = "a message of a partition was lost on its way: taking the partition again"

// missed reports whether the consumer has sent a message that has not arrived.
func (s *session) missed(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	c, err := s.JS.Consumer(ctx, s.Stream, s.name)
	if err != nil {
		return false
	}
	sent := c.CachedInfo().Delivered.Consumer
	if sent <= s.dseq || len(s.messages) > 0 {
		return false
	}
	s.complain(onTheWay, nil)
	return true
}

// status handles the end of a pull.
func (s *session) status(ctx context.Context, code, description string) (why reason, ended bool) {
	if code == statusNobody || strings.Contains(description, "Deleted") {
		if s.gone(ctx) {
			s.complain("the consumer of a partition is gone: taking the partition again", nil)
			return gap, true
		}
		s.sleep(ctx, retryPause)
	} else if s.hand.open() == 0 {
		s.progress() // there are no more messages
	}
	return 0, false
}

// take puts a message in hand.
func (s *session) take(ctx context.Context, m *nats.Msg) (why reason, ended bool) {
	if s.lose != nil && s.lose() {
		return 0, false
	}
	number, sequence, ok := numbers(m.Reply)
	if !ok {
		s.Log.Warn("a message of a partition has no numbers: taking the partition again", slog.String("subject", m.Subject))
		return gap, true
	}
	if number != s.dseq+1 {
		s.complain(onTheWay, nil)
		return gap, true
	}
	s.dseq = number
	if !s.hand.take(sequence, m.Reply) {
		return 0, false // it is in hand, or done
	}
	return s.give(ctx, &Message{sequence, m.Subject, m.Header, m.Data})
}

// give passes a message to the handler.
func (s *session) give(ctx context.Context, m *Message) (why reason, ended bool) {
	// The first part decides for the whole message. If the message ends this worker, too, the next
	// owner finds its number in the trail, so that is written before the handler begins.
	trail := s.lease.Trail
	if !s.more {
		s.poison = trail.Handling == m.Sequence && trail.Unclean > carefulAfter
		if s.careful && !s.lease.Written(owner.Trail{Unclean: trail.Unclean, Handling: m.Sequence}, s.lease.Released()) {
			return s.left(ctx), true
		}
	}
	s.parts = append(s.parts, m.Sequence)
	more, err := s.handler.Take(m, s.poison)
	if err != nil {
		s.Complaints.Say(slog.LevelError, "a message cannot be handled, and the ones behind it wait: use the version and the configuration of the leader",
			fmt.Errorf("message #%d: %w", m.Sequence, err), slog.String("route", s.Route))
		s.hand.forget(s.parts...)
		s.sleep(ctx, refusedPause)
		if why = s.left(ctx); why == lost || why == released {
			return why, true
		}
		return gap, true
	}
	s.taken++
	if s.more = more; !more { // the handler has all parts
		s.parts = s.parts[:0]
	}
	if why, ended := s.resize(ctx); ended || more {
		return why, ended
	}
	if s.careful && !s.hand.wait(ctx, s.lease.Released(), s.hand.empty) {
		return s.left(ctx), true
	}
	// The owner before had Pending messages in hand at most, and this one gets them first.
	if s.taken >= s.Pending && s.suspect == 0 {
		s.suspect = m.Sequence
	}
	if trail.Unclean > 0 && !s.trusted && s.suspect > 0 {
		if oldest := s.hand.oldest(); oldest == 0 || oldest > s.suspect {
			s.progress()
		}
	}
	return 0, false
}

// left returns why a session ends that was told to.
func (s *session) left(ctx context.Context) reason {
	select {
	case <-s.lease.Released():
		if ctx.Err() == nil {
			return released
		}
	default:
	}
	if ctx.Err() == nil {
		return gap
	}
	return lost
}

// progress ends the suspicion: all messages that earlier owners can have had in hand are done.
func (s *session) progress() {
	if s.lease.Trail.Unclean == 0 || s.trusted {
		return
	}
	s.trusted = true
	s.lease.Leave(owner.Trail{})
	if s.careful {
		s.Log.Info("the messages of the partition are handled side by side again")
	}
	s.careful = false
}

// numbers returns the number of a message in the order of its consumer, and in the stream:
// $JS.ACK.<stream>.<consumer>.<deliveries>.<stream sequence>.<consumer sequence>.<time>.<pending>,
// or with the domain and the account before the stream, and a token at the end.
func numbers(reply string) (consumer, stream uint64, ok bool) {
	f := strings.Split(reply, ".")
	at := 5
	if len(f) >= 11 {
		at = 7
	} else if len(f) != 9 {
		return 0, 0, false
	}
	stream, err := strconv.ParseUint(f[at], 10, 64)
	if err != nil {
		return 0, 0, false
	}
	consumer, err = strconv.ParseUint(f[at+1], 10, 64)
	return consumer, stream, err == nil
}
