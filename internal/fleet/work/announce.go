package work

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltarouter/deltarouter/internal/fleet"
	"github.com/deltarouter/deltarouter/internal/fleet/owner"
)

// Use sets the routes of the present configuration. It announces them to the workers, also those
// without deltas, and withdraws those that it does not have any more: the workers have handled all
// their deltas, see [Sink.Retire].
func (o *Outbox) Use(sinks []*Sink) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.current, o.used = sinks, true
	for id, d := range o.routes {
		if !d.gone && !slices.ContainsFunc(sinks, func(s *Sink) bool { return s.route.ID == id }) {
			d.gone, d.announced = true, false
		}
	}
	for _, s := range sinks {
		o.use(s)
	}
	o.kick()
}

// use makes the latest sink of a route the one to announce. o.mu is held.
func (o *Outbox) use(s *Sink) {
	d := o.routes[s.route.ID]
	if d == nil {
		d = &destination{}
		o.routes[s.route.ID] = d
	}
	if d.gone {
		d.gone, d.announced = false, false
	}
	if d.sink == nil || d.sink.number < s.number {
		same := d.sink != nil && d.sink.route == s.route
		d.sink, d.announced = s, d.announced && same
	}
}

// announce tells the workers of the routes that changed.
func (o *Outbox) announce(ctx context.Context) error {
	conn := o.config.Conn
	id, s := o.unannounced()
	if id == "" {
		return nil
	}
	bucket, err := conn.JS.KeyValue(ctx, conn.Names.Owners())
	if err != nil {
		return fmt.Errorf("bucket %s: %w", conn.Names.Owners(), err)
	}
	for ; id != ""; id, s = o.unannounced() {
		if err := o.tell(ctx, owner.KV(bucket), id, s); err != nil {
			return err
		}
	}
	return nil
}

// unannounced returns a route to announce, or without a sink to withdraw; empty: there is none.
func (o *Outbox) unannounced() (id string, s *Sink) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for id, d := range o.routes {
		if d.announced {
			continue
		}
		if d.gone {
			return id, nil
		}
		return id, d.sink
	}
	return "", nil
}

// tell announces a route with a sink, and withdraws one without.
func (o *Outbox) tell(ctx context.Context, store owner.Store, id string, s *Sink) error {
	ctx, cancel := context.WithTimeout(ctx, stuckAfter)
	defer cancel()
	var generation uint64
	var err error
	if s == nil {
		err = owner.Withdraw(ctx, store, fleet.Token(id))
	} else {
		generation, err = o.write(ctx, store, s.route)
	}
	if err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	d := o.routes[id]
	if s == nil {
		d.announced = d.gone
		return nil
	}
	d.generation, d.partitions, d.announced = generation, s.route.Partitions, d.sink == s && !d.gone
	return nil
}

// write writes the record of a route, and returns the generation to publish to.
func (o *Outbox) write(ctx context.Context, s owner.Store, r Route) (generation uint64, err error) {
	token := fleet.Token(r.ID)
	if err := owner.Restore(ctx, s, token, r.ID, r.Partitions, func(ctx context.Context, route string) ([]owner.Generation, error) {
		return generations(ctx, o.config.Conn, route)
	}); err != nil {
		return 0, err
	}
	return owner.Announce(ctx, s, token, r.ID, r.Hash, r.Partitions, o.empty)
}

// empty implements owner.Empty.
func (o *Outbox) empty(ctx context.Context, route string, generation uint64) (bool, error) {
	return none(ctx, o.config.Conn, o.config.Conn.Names.WorkGeneration(route, generation))
}

// none reports whether the stream has no message with a subject.
func none(ctx context.Context, conn *fleet.Conn, filter string) (bool, error) {
	stream, err := conn.JS.Stream(ctx, conn.Names.Work())
	if err != nil {
		return false, err
	}
	_, err = stream.GetMsg(ctx, 1, jetstream.WithGetMsgSubject(filter))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return true, nil
	}
	return false, err
}
