package router

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/deltarouter/deltarouter/internal/api"
	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/engine"
	"github.com/deltarouter/deltarouter/internal/fleet/deadletters"
	"github.com/deltarouter/deltarouter/internal/fleet/election"
	"github.com/deltarouter/deltarouter/internal/fleet/fence"
	"github.com/deltarouter/deltarouter/internal/fleet/lookup"
	"github.com/deltarouter/deltarouter/internal/fleet/replica"
	"github.com/deltarouter/deltarouter/internal/fleet/roster"
	"github.com/deltarouter/deltarouter/internal/fleet/work"
	"github.com/deltarouter/deltarouter/internal/inspect"
	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/internal/pipeline"
)

// The causes for the end of a term.
var (
	// errDeposed: the Lease could not be renewed in time, or another member has the stream.
	errDeposed = errors.New("this member does not lead the fleet any more")
	// errHandover: another member asked for the leadership.
	errHandover = errors.New("another member of the fleet takes over")
)

// flushTimeout bounds the publication of the last cut of a term.
const flushTimeout = 10 * time.Second

// term is the leadership of this process in its fleet, from an election to its end. The methods of
// nil are those of a router without a fleet.
type term struct {
	member  *member
	lead    *election.Leadership
	shipper *replica.Shipper
	cuts    *fence.Publisher // of the stream of frames
	before  fence.Record     // which cuts replaced
	outbox  *work.Outbox     // for the workers
	// the open file of the standby; nil: the state has it
	db  atomic.Pointer[checkpoint.DB]
	end context.CancelCauseFunc

	health streamHealth
}

// permit returns the function that deliveries ask; nil: all may begin.
func (t *term) permit() func() bool {
	if t == nil {
		return nil
	}
	return t.lead.Permit
}

// shipping returns the settings of the state file by which the standbys get its transactions. The
// caller opens the state with them.
func (t *term) shipping() engine.Shipping {
	if t == nil {
		return engine.Shipping{}
	}
	return engine.Shipping{DB: t.db.Swap(nil), Shipped: t.shipper.Ship, Confirm: t.shipper.Confirm, Term: t.cuts.Term()}
}

// close closes the state file, if the router has not opened the state.
func (t *term) close() error {
	if db := t.db.Swap(nil); db != nil {
		return db.Close()
	}
	return nil
}

// deposed reports whether ctx, of the run of the router, ended because another member may lead.
func (t *term) deposed(ctx context.Context) bool {
	return t != nil && errors.Is(context.Cause(ctx), errDeposed)
}

// stopAtOnce lets the pipeline stop as soon as this member is deposed, in the middle of deliveries.
func (t *term) stopAtOnce(ctx context.Context, p *pipeline.Pipeline) (end func() bool) {
	if t == nil {
		return func() bool { return true }
	}
	return context.AfterFunc(ctx, func() {
		if t.deposed(ctx) {
			closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), engine.CloseTimeout)
			defer cancel()
			_ = p.Close(closing) // it is closed again, and then reports the error
		}
	})
}

// work returns the way to the workers; nil: all routes are handled here.
func (t *term) work() *work.Outbox {
	if t == nil {
		return nil
	}
	return t.outbox
}

// serve runs the services of the leader for its fleet until ctx is done, after the pipeline is
// closed. The state is open.
func (t *term) serve(ctx context.Context, all *sync.WaitGroup, r *router) {
	if t == nil {
		return
	}
	all.Go(func() { t.ship(ctx, r.State) })
	all.Go(func() { t.tend(ctx, r.Metrics) })
	all.Go(func() { deadletters.Import(ctx, t.member.conn, r.State.Letters, r.Log) })
	all.Go(func() {
		t.member.conn.Backlog(ctx, func(messages uint64, known bool) {
			if r.Metrics.Fleet.Work.Reset(); known {
				r.Metrics.Fleet.Work.WithLabelValues().Set(float64(messages))
			}
		})
	})
	leading, stop := context.WithCancel(ctx) // not after the Lease
	all.Go(func() { t.outbox.Run(leading) })
	all.Go(func() {
		if err := lookup.Serve(leading, t.member.conn, inspect.NewLookups(r.objects, r.synced, r.Factory.Applied)); err != nil {
			r.Log.Warn("fleet: handlers of workers look nothing up", "err", err)
		}
	})
	// A loss that is noticed elsewhere ends these two as well.
	all.Go(func() {
		defer stop()
		select {
		case <-t.outbox.Deposed():
			t.depose()
		case <-t.lead.Lost():
		case <-ctx.Done():
		}
	})
}

// ship publishes the transactions of the state file until ctx is done or another member leads.
func (t *term) ship(ctx context.Context, s *engine.State) {
	for {
		err := t.shipper.Run(ctx, s.DB(), t.cuts, t.before)
		if ctx.Err() != nil {
			return
		}
		if !errors.Is(err, fence.ErrLeadGone) {
			t.member.log.Warn("fleet: another member leads", "err", err)
			t.depose()
			return
		}
		t.member.log.Warn("fleet: the stream was purged or made again: the leader writes it anew", "err", err)
		if err := t.reopen(ctx); err != nil {
			t.member.log.Warn("fleet: the stream cannot be opened", "err", err)
			t.depose()
			return
		}
	}
}

// reopen opens the stream of frames again, while this member has the Lease.
func (t *term) reopen(ctx context.Context) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-t.lead.Lost():
			cancel()
		case <-ctx.Done():
		}
	}()
	t.cuts, t.before, err = t.member.openCuts(ctx, t.cuts.Term(), t.health.failing)
	if err == nil {
		t.health.failing(nil) // a failure of the publisher before
	}
	return err
}

// depose ends the term at once.
func (t *term) depose() {
	t.lead.Abandon()
	t.end(errDeposed)
}

// finish publishes the last cut.
func (t *term) finish(ctx context.Context) {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
	defer cancel()
	if err := t.shipper.Flush(ctx); err != nil {
		t.member.log.Warn("fleet: the last cut did not reach NATS: the next leader delivers its last deltas again", "err", err)
	}
}

// watch ends the term when the Lease is lost, or when another member asks for it and has all that
// it needs. It returns with ctx.
func (t *term) watch(ctx context.Context) {
	// A term without a request lasts as long as the Lease.
	select {
	case <-t.lead.Lost():
		t.end(errDeposed)
		return
	case <-ctx.Done():
		return
	case <-t.lead.Asked():
	}
	// The other member reads the last cuts from NATS, so the handover waits until they are there.
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for complained := false; ; complained = true {
		lag := t.shipper.Lag()
		if t.member.conn.NATS.IsConnected() && lag.Time < handoverLag {
			t.end(errHandover)
			return
		}
		if !complained {
			t.member.log.Warn("fleet: a member asks for the leadership, which waits until NATS has the last cuts", "member", t.lead.AskedBy())
		}
		select {
		case <-t.lead.Lost():
			t.end(errDeposed)
			return
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// handoverLag is the age of the oldest unpublished frame with which a leader hands over.
const handoverLag = 2 * time.Second

// lateLag is the lag that the checks report.
const lateLag = 10 * time.Second

// shown returns the fleet for the status; nil: there is none.
func (t *term) shown() *api.FleetStatus {
	if t == nil {
		return nil
	}
	return t.member.shown(roster.Leader, t.shipper.Lag())
}

// announce adds the metrics of the fleet.
func (t *term) announce(m *metrics.Metrics) {
	if t != nil {
		announceMember(m, t.member, true)
	}
}

// promote is the answer to a request for the leadership.
func (t *term) promote(context.Context) error {
	if t == nil {
		return errors.New("this router is in no fleet, so there is no standby")
	}
	return errors.New("this member leads already: ask the standby that is to lead")
}

// role returns the role for the first line of /readyz.
func (t *term) role() string {
	if t == nil {
		return ""
	}
	return "leader"
}
