package lookup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"

	"github.com/deltarouter/deltarouter/internal/fleet"
	"github.com/deltarouter/deltarouter/internal/printable"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// maxText bounds the text of an error of the leader.
const maxText = 512

// remote is the Lookup of a handler on a worker.
type remote struct {
	conn    *fleet.Conn
	handler string
}

// Remote returns the Lookup of a handler on a worker, a [plugins.RemoteLookup]. The host of the
// handler checks its grants before each look-up, and the leader checks them again.
func Remote(conn *fleet.Conn, handler string) plugins.Lookup { return &remote{conn, handler} }

// Lookup implements plugins.Lookup.
func (r *remote) Lookup(source, index, value string) []*event.Object {
	return r.objects(plugins.LookupQuery{Source: source, Index: index, Value: value})
}

// Count implements plugins.Lookup.
func (r *remote) Count(source, index, value string) int {
	_, count, _ := r.Ask(context.Background(), plugins.LookupQuery{Source: source, Index: index, Value: value, Count: true}) //nolint:forbidigo // the interface has none
	return count
}

// Get implements plugins.Lookup.
func (r *remote) Get(source, namespace, name string) *event.Object {
	for _, o := range r.objects(plugins.LookupQuery{Source: source, Namespace: namespace, Name: name}) {
		return o
	}
	return nil
}

func (r *remote) objects(q plugins.LookupQuery) []*event.Object {
	found, _, _ := r.Ask(context.Background(), q) //nolint:forbidigo // the interface has none
	return found
}

// Ask implements plugins.RemoteLookup.
func (r *remote) Ask(ctx context.Context, q plugins.LookupQuery) (objects []*event.Object, count int, err error) {
	a, err := r.ask(ctx, q)
	if errors.Is(err, ErrTooLarge) {
		return nil, 0, plugins.Reject(err)
	}
	if err != nil {
		return nil, 0, plugins.Postpone(err, again)
	}
	return a.Objects, a.Count, nil
}

func (r *remote) ask(ctx context.Context, q plugins.LookupQuery) (*Answer, error) {
	request, err := json.Marshal(Request{
		Handler: r.handler, Source: q.Source, Index: q.Index, Value: q.Value, Namespace: q.Namespace, Name: q.Name, Count: q.Count, Needs: needs(q.Deltas),
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	// An answer may have several messages, and a request of nats.go receives one.
	inbox := r.conn.NATS.NewRespInbox()
	answers, err := r.conn.NATS.SubscribeSync(inbox)
	if err != nil {
		return nil, fmt.Errorf("NATS: %w", err)
	}
	defer func() { _ = answers.Unsubscribe() }() // an error means that the connection is closed
	if err := r.conn.NATS.PublishRequest(r.conn.Names.Lookup(), inbox, request); err != nil {
		return nil, fmt.Errorf("NATS cannot be reached: %w", err)
	}
	compressed, err := collect(ctx, answers)
	if err != nil {
		return nil, err
	}
	a, err := decompress(compressed)
	if err != nil {
		return nil, fmt.Errorf("the answer of the leader: %w", err)
	}
	return a, nil
}

// collect receives the messages of one answer, in order.
func collect(ctx context.Context, answers *nats.Subscription) (compressed []byte, err error) {
	from := ""
	for next := 0; ; {
		m, err := answers.NextMsgWithContext(ctx)
		if errors.Is(err, nats.ErrNoResponders) {
			return nil, errors.New("no leader answers look-ups at the moment")
		}
		if err != nil {
			return nil, fmt.Errorf("the leader does not answer a look-up: %w", err)
		}
		if from == "" {
			from = m.Header.Get(fromHeader)
		}
		if m.Header.Get(fromHeader) != from {
			continue // the answer of another member
		}
		if status := m.Header.Get(statusHeader); status != statusOK {
			if known := statuses[status]; known != nil {
				return nil, known
			}
			return nil, fmt.Errorf("the leader: %s", printable.Clean(string(m.Data), maxText))
		}
		if m.Header.Get(partHeader) != strconv.Itoa(next) {
			return nil, errors.New("a part of the answer is missing")
		}
		// The bound holds before the end has arrived.
		if compressed = append(compressed, m.Data...); len(compressed) > 2*MaxAnswer {
			return nil, ErrTooLarge
		}
		if next++; m.Header.Get(partsHeader) == strconv.Itoa(next) {
			return compressed, nil
		}
	}
}

// needs returns the states of the deltas.
func needs(deltas []*event.Delta) []Need {
	all := make([]Need, 0, len(deltas))
	for _, d := range deltas {
		o := d.Object()
		all = append(all, Need{d.Source, o.Key().Namespace, o.Key().Name, o.ResourceVersion(), d.New == nil})
	}
	return all
}
