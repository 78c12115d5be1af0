package work

import (
	"context"
	"errors"
	"strconv"

	"github.com/nats-io/nats.go"

	"github.com/deltarouter/deltarouter/internal/fleet"
	"github.com/deltarouter/deltarouter/internal/fleet/fence"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// publish opens the stream if it is not open, announces changed routes, and publishes the queue.
func (o *Outbox) publish(ctx context.Context) error {
	if o.usable() != nil {
		return o.guard(o.usable)
	}
	if o.publisher == nil {
		if err := o.guard(func() error { return o.open(ctx) }); err != nil {
			return err
		}
	}
	for ctx.Err() == nil {
		batch := o.take()
		if o.usable() != nil {
			return o.guard(o.usable)
		}
		if err := o.guard(func() error { return o.announce(ctx) }); err != nil || len(batch) == 0 {
			return err
		}
		if err := o.guard(func() error { return o.send(ctx, batch) }); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// take returns the first items of the queue, as many as a batch may have. They stay in the queue
// until send.
func (o *Outbox) take() []*item {
	o.mu.Lock()
	defer o.mu.Unlock()
	bytes, n := 0, 0
	for n < len(o.queue) && n < fence.MaxMessages {
		if bytes += len(o.queue[n].body); n > 0 && bytes > fence.MaxBytes {
			break
		}
		o.use(o.queue[n].sink)
		n++
	}
	return append([]*item(nil), o.queue[:n]...)
}

// send publishes the items of a batch that were not withdrawn meanwhile, and sets their results.
func (o *Outbox) send(ctx context.Context, batch []*item) error {
	limit := o.config.Conn.NATS.MaxPayload()
	items, messages := o.messages(batch, limit)
	if len(items) == 0 {
		return nil
	}
	err := o.store(ctx, messages, items)
	if !isRefused(err) || len(items) == 1 {
		return o.result(err, items)
	}
	for i, it := range items { // one of them is refused, the others are not
		alone := signed(o.config.Conn.Workers, o.subject(it), it, limit, "")
		err := o.store(ctx, alone, items[i:i+1])
		if err != nil && !isRefused(err) {
			return o.result(err, items[i:])
		}
		_ = o.result(err, items[i:i+1])
	}
	return nil
}

func isRefused(err error) bool {
	var refused *fence.RefusedError
	return errors.As(err, &refused)
}

// store publishes the messages of some items as one batch, with the list of the items.
func (o *Outbox) store(ctx context.Context, messages []*nats.Msg, items []*item) error {
	list, note := o.published.list(o.config.Conn, items)
	_, err := o.publisher.Publish(ctx, append(messages, list), note)
	if err == nil {
		o.witness.keep(list.Subject)
	}
	return err
}

// messages takes items out of the queue and returns their messages.
func (o *Outbox) messages(batch []*item, limit int64) (items []*item, messages []*nats.Msg) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i, it := range batch {
		if it.done {
			continue
		}
		if o.published.has(it) {
			o.finish(it, nil)
			continue
		}
		it.sent = true
		items = append(items, it)
		messages = append(messages, signed(o.config.Conn.Workers, o.subject(it), it, limit, strconv.Itoa(i))...)
	}
	n := 0
	for n < len(o.queue) && (o.queue[n].sent || o.queue[n].done) {
		n++
	}
	clear(o.queue[:n])
	o.queue = o.queue[n:]
	return items, messages
}

// signed returns the messages of an item. The last one has the signature of the whole body: parts
// of other messages do not fit.
func signed(keys *fleet.Keys, subject string, it *item, limit int64, id string) []*nats.Msg {
	messages := split(subject, it.body, limit, id)
	if mac := keys.Sign(fleet.PurposeDelta, subject, "", it.body); mac != "" {
		messages[len(messages)-1].Header[fleet.MACHeader] = []string{mac}
	}
	return messages
}

// subject returns the subject of an item. Only Run, which calls it, changes destinations.
func (o *Outbox) subject(it *item) string {
	d := o.routes[it.id.route]
	return o.config.Conn.Names.WorkSubject(it.id.route, d.generation, Partition(it.key, d.partitions), it.key)
}

// result sets the result of items that were sent. An error without a known outcome puts them back.
func (o *Outbox) result(err error, items []*item) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err == nil || isRefused(err) {
		var outcome error
		if err != nil {
			outcome = plugins.Reject(err)
		}
		for _, it := range items {
			o.finish(it, outcome)
		}
		return nil
	}
	if errors.Is(err, fence.ErrLeadGone) { // nothing was stored
		for _, it := range items {
			it.sent = false
		}
		o.queue = append(append([]*item(nil), items...), o.queue...)
	}
	return err
}
