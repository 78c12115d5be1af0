package work

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltarouter/deltarouter/internal/fleet"
)

// witness is a list in the stream. Later lists with its subject replace it, and nothing of the
// fleet removes it, so the stream was emptied if it is gone.
type witness struct {
	mu      sync.Mutex
	subject string // empty: none was stored yet
}

// keep sets the list, if there is none.
func (w *witness) keep(subject string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.subject == "" {
		w.subject = subject
	}
}

// forget removes the list, and returns its subject.
func (w *witness) forget() (subject string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	subject, w.subject = w.subject, ""
	return subject
}

// gone reports whether the stream has the list no more, and forgets it then.
func (w *witness) gone(ctx context.Context, conn *fleet.Conn) (bool, error) {
	w.mu.Lock()
	subject := w.subject
	w.mu.Unlock()
	if subject == "" {
		return false, nil
	}
	request, err := json.Marshal(map[string]string{"last_by_subj": subject})
	if err != nil {
		return false, err
	}
	// from the leader of the stream: the other servers may lag behind
	reply, err := conn.NATS.RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET."+conn.Names.Work(), request)
	if err != nil {
		return false, fmt.Errorf("stream %s: %w", conn.Names.Work(), err)
	}
	var answer struct {
		Error *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(reply.Data, &answer); err != nil {
		return false, fmt.Errorf("stream %s: %w", conn.Names.Work(), err)
	}
	if answer.Error == nil || answer.Error.ErrorCode != jetstream.JSErrCodeMessageNotFound {
		return false, nil
	}
	return w.forget() != "", nil
}

// logEmptied reports the loss of messages that the workers have not acknowledged.
func logEmptied(log *slog.Logger, stream string) {
	log.Error("fleet: the stream of the workers was purged, or made again: the deltas that waited there are lost; "+
		"router resync -route ROUTE delivers the present state of all objects of a route", "stream", stream)
}
