package work

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/deltarouter/deltarouter/internal/fleet"
	"github.com/deltarouter/deltarouter/internal/fleet/fence"
)

const (
	// linger is the time for which a batch waits for the events of other routes.
	linger = 2 * time.Millisecond
	// stuckAfter is the time without an answer after which the sinks count as unavailable.
	stuckAfter = 5 * time.Second
	// retryAfter is the pause before the next attempt to open the stream or to announce a route.
	retryAfter = time.Second
)

// OutboxConfig describes an Outbox.
type OutboxConfig struct {
	Conn   *fleet.Conn
	Holder string // name of this member
	Log    *slog.Logger
}

// Outbox publishes the events of the work sinks, as the only writer of the stream: one batch at a
// time, with the events of all routes. It belongs to one leadership.
type Outbox struct {
	config  OutboxConfig
	codec   *Codec
	deposed chan struct{}

	transfers

	// guarded by transfers.mu
	sinks   uint64
	routes  map[string]*destination // by id
	current []*Sink                 // of the present configuration
	used    bool                    // current is set
	// trouble is the reason of the last failed attempt to store a batch; nil: it was stored.
	trouble error
	// unusable is the reason why nothing must be published; empty: there is none.
	unusable string
	stranded []Stranded

	witness witness

	// used by Run only
	publisher *fence.Publisher
	published published
	term      uint64
}

// destination is the place in the stream for the deltas of a route.
type destination struct {
	sink       *Sink // the one that was announced, or is to be
	gone       bool  // the present configuration has no workers for the route: it is withdrawn
	announced  bool
	generation uint64
	partitions int
}

// NewOutbox returns an outbox. Its sinks wait until Run runs.
func NewOutbox(config OutboxConfig) *Outbox {
	return &Outbox{
		config: config, codec: NewCodec(), deposed: make(chan struct{}), routes: make(map[string]*destination),
		transfers: transfers{wake: make(chan struct{}, 1), stuck: make(chan struct{}), items: make(map[itemID]*item)},
	}
}

// Deposed is closed when another member has opened the stream.
func (o *Outbox) Deposed() <-chan struct{} { return o.deposed }

// Run opens the stream and publishes until ctx ends, which must be with the Lease, or until the
// outbox is deposed. The stream is opened without waiting for an event: from then on the batches of
// earlier leaders are refused.
func (o *Outbox) Run(ctx context.Context) {
	defer o.stop()
	complained := ""
	for ctx.Err() == nil {
		err := o.publish(ctx)
		if err == nil {
			complained = ""
			o.await(ctx)
			continue
		}
		if errors.Is(err, fence.ErrDeposed) {
			o.config.Log.Warn("fleet: another member publishes to the workers, this one stops", "err", err)
			close(o.deposed)
			return
		}
		if errors.Is(err, fence.ErrLeadGone) { // this member still has the Lease, so it opens it again
			if o.witness.forget() != "" { // else Audit was faster, or the stream was new
				logEmptied(o.config.Log, o.config.Conn.Names.Work())
			}
			o.publisher = nil
			continue
		}
		if ctx.Err() == nil {
			if text := err.Error(); text != complained {
				complained = text
				o.config.Log.Warn("fleet: the deltas for workers wait", "err", err)
			}
			pause(ctx, retryAfter)
		}
	}
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// await waits for something to do, and then for more of it.
func (o *Outbox) await(ctx context.Context) {
	select {
	case <-o.wake:
	case <-ctx.Done():
		return
	}
	o.mu.Lock()
	full := len(o.queue) >= fence.MaxMessages
	o.mu.Unlock()
	if !full {
		pause(ctx, linger)
	}
}

// stop ends the outbox: all events fail.
func (o *Outbox) stop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stopped = true
	for _, it := range o.queue {
		if !it.done && !it.sent {
			o.finish(it, errStopped)
		}
	}
	o.queue = nil
	o.fail(errStopped)
}

// guard makes the sinks unavailable while step takes longer than stuckAfter or fails.
func (o *Outbox) guard(step func() error) error {
	late := time.AfterFunc(stuckAfter, func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.fail(cmp.Or(o.config.Conn.Trouble(), o.trouble, fmt.Errorf("no answer for %v", stuckAfter)))
	})
	err := step()
	late.Stop()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.fail(nil); err != nil && !errors.Is(err, fence.ErrLeadGone) { // the next step opens the stream again
		o.fail(err)
	}
	return err
}

// open opens the stream, which it makes if it is missing.
func (o *Outbox) open(ctx context.Context) error {
	conn := o.config.Conn
	if err := conn.Ready(ctx); err != nil {
		return err
	}
	if err := conn.Ensure(ctx); err != nil {
		return err
	}
	p, before, err := fence.Open(ctx, fence.Config{
		Conn: conn.NATS, Stream: conn.Names.Work(), Lead: conn.Names.WorkLead(), Holder: o.config.Holder, After: o.term, Log: o.config.Log,
		Missing: o.restore, Failing: o.failed, Keep: true, Keys: conn.Members, Refused: func(err error) { conn.Refuse(fleet.RefusedLead, err) },
	})
	if err != nil {
		return err
	}
	o.config.Log.Info("fleet: this member publishes to the workers", "term", p.Term(), "before", before.Holder)
	o.term = p.Term()
	err = o.published.read(ctx, conn, before.Note)
	if err != nil && (o.published.number == 0 || ctx.Err() != nil) {
		return err
	}
	if err != nil {
		o.config.Log.Warn("fleet: the last deltas of the leader before may be delivered again", "err", err)
	} else if o.published.number > 0 { // 0: a new stream
		o.witness.keep(fleet.WorkList(conn.Names, o.published.number))
	}
	o.publisher = p
	o.mu.Lock()
	defer o.mu.Unlock()
	o.trouble = nil // a failure of the publisher before
	for _, d := range o.routes {
		d.announced = false
	}
	return nil
}

// restore makes the stream again after it was deleted.
func (o *Outbox) restore(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stuckAfter)
	defer cancel()
	return o.config.Conn.Ensure(ctx)
}

// failed keeps the reason why a batch is not stored.
func (o *Outbox) failed(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.trouble = err
}

// Refuse makes the sinks unavailable while the stream has settings with which it loses messages;
// empty: it has none.
func (o *Outbox) Refuse(reason string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.unusable != reason {
		o.unusable = reason
		o.kick()
	}
}

// usable returns the error of Refuse.
func (o *Outbox) usable() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.unusable == "" {
		return nil
	}
	return errors.New(o.unusable)
}
