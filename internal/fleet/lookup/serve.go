package lookup

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"github.com/deltarouter/deltarouter/internal/fleet"
	"github.com/deltarouter/deltarouter/internal/printable"
)

const (
	// atOnce is the number of look-ups that are answered at the same time.
	atOnce = 4
	// maxWaiting bounds the look-ups that wait. Those beyond are lost, and their deltas postponed.
	maxWaiting = 1024
)

// Lookups answers look-ups from the caches of this process. It is called from several goroutines.
type Lookups interface {
	// LookUp answers a look-up of a worker. The errors are those of this package, or unexpected.
	LookUp(ctx context.Context, r *Request) (*Answer, error)
}

// Serve answers the look-ups of workers until ctx ends. The leader runs it while its caches are
// open.
func Serve(ctx context.Context, conn *fleet.Conn, from Lookups) error {
	requests := make(chan *nats.Msg, maxWaiting)
	subscription, err := conn.NATS.ChanSubscribe(conn.Names.Lookup(), requests)
	if err != nil {
		return fmt.Errorf("the look-ups of workers cannot be answered: %w", err)
	}
	defer func() { _ = subscription.Unsubscribe() }() // an error means that the connection is closed
	s := &server{conn: conn, from: from, id: nuid.Next()}
	var all sync.WaitGroup
	for range atOnce {
		all.Go(func() { s.run(ctx, requests) })
	}
	all.Wait()
	return nil
}

type server struct {
	conn *fleet.Conn
	from Lookups
	id   string
}

func (s *server) run(ctx context.Context, requests <-chan *nats.Msg) {
	for {
		select {
		case m := <-requests:
			s.answer(ctx, m)
		case <-ctx.Done():
			return
		}
	}
}

func (s *server) answer(ctx context.Context, m *nats.Msg) {
	if m.Reply == "" {
		return
	}
	// The answer has objects, so it goes to workers of the fleet only.
	if !fleet.IsInbox(s.conn.Names, m.Reply) {
		s.conn.Refuse(fleet.RefusedReply, fmt.Errorf("the answer to a look-up was to go to %q, which is no inbox of a worker", printable.Clean(m.Reply, maxText)))
		return
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var r Request
	var a *Answer
	err := fmt.Errorf("the request has more than %d bytes", maxRequest)
	if len(m.Data) <= maxRequest {
		if err = json.Unmarshal(m.Data, &r); err == nil {
			a, err = s.from.LookUp(ctx, &r)
		}
	}
	if statusOf(err) == statusFailed && ctx.Err() == nil {
		s.conn.Complaints.Say(slog.LevelWarn, "fleet: a look-up of a worker fails", err, slog.String("handler", r.Handler), slog.String("source", r.Source))
	}
	for _, part := range parts(a, err, s.id) {
		part.Subject = m.Reply
		if err := s.conn.NATS.PublishMsg(part); err != nil {
			return // the worker asks again
		}
	}
}
