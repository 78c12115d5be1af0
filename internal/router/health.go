package router

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/deltarouter/deltarouter/internal/api"
	"github.com/deltarouter/deltarouter/internal/fleet"
	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/internal/printable"
)

// streamHealth is the state of NATS as the leader has found it.
type streamHealth struct {
	found   atomic.Pointer[fleet.Health]
	trouble atomic.Pointer[trouble] // nil: the frames of the state file are published
}

// trouble is the reason why the frames of the state file are not published.
type trouble struct {
	text  string
	since time.Time
}

// failing keeps the reason why the frames of the state file are not published; nil: they are.
func (h *streamHealth) failing(err error) {
	if err == nil {
		h.trouble.Store(nil)
		return
	}
	now := &trouble{err.Error(), time.Now()}
	if before := h.trouble.Load(); before != nil {
		now.since = before.since
	}
	h.trouble.Store(now)
}

// why returns the reason of failing, with brackets for a sentence; empty: there is none.
func (h *streamHealth) why() string {
	if now := h.trouble.Load(); now != nil {
		return " (" + now.text + ")"
	}
	return ""
}

// refusedAfter is the time after which a failure is a problem: the election of a leader of a stream
// takes as long.
const refusedAfter = 5 * time.Second

// refused returns the reason of failing if it lasts; empty: there is none.
func (h *streamHealth) refused() string {
	if now := h.trouble.Load(); now != nil && time.Since(now.since) >= refusedAfter {
		return now.text
	}
	return ""
}

// tend looks after the streams until ctx is done.
func (t *term) tend(ctx context.Context, m *metrics.Metrics) {
	conn := t.member.conn
	defer m.Fleet.Problems.Reset()
	defer m.Fleet.Stranded.Reset()
	conn.Monitor(ctx, t.health.refused, func(found fleet.Health) {
		t.health.found.Store(&found)
		m.Fleet.Problems.WithLabelValues().Set(float64(len(found.Problems)))
		t.outbox.Refuse(found.Unusable(conn.Names.Work()))
		if len(found.Problems) > 0 {
			return // requests could fail
		}
		if err := t.outbox.Audit(ctx); err != nil && ctx.Err() == nil {
			t.member.log.Warn("fleet: it is unknown whether deltas wait for workers of former routes", "err", err)
		}
		m.Fleet.Stranded.Reset()
		for _, s := range t.outbox.Stranded() {
			m.Fleet.Stranded.WithLabelValues(s.Route).Set(float64(s.Waiting))
		}
	})
}

// refusedCheck returns the check of the refusals of the last hour, if there are any.
func refusedCheck(conn *fleet.Conn) []api.Check {
	if text := conn.Refused.Recent(time.Now()); text != "" {
		return []api.Check{{Name: "fleet/refused", Message: text}}
	}
	return nil
}

// checks returns the checks of the leader for /readyz and the status.
func (t *term) checks() []api.Check {
	if t == nil {
		return nil
	}
	c := api.Check{Name: "fleet", OK: true}
	if lag := t.shipper.Lag(); lag.Time > lateLag {
		c.OK = false
		c.Message = fmt.Sprintf("leader; NATS lacks the checkpoints of the last %s%s, so a takeover now would repeat their deliveries",
			printable.Duration(lag.Time), t.health.why())
	}
	checks := []api.Check{c}
	servers := api.Check{Name: "fleet/nats", OK: true}
	if err := t.member.conn.Trouble(); err != nil {
		servers.OK, servers.Message = false, err.Error()
	} else if found := t.health.found.Load(); found != nil && len(found.Problems) > 0 {
		servers.OK, servers.Message = false, strings.Join(found.Texts(), "; ")
	}
	checks = append(append(checks, servers), refusedCheck(t.member.conn)...)
	for _, s := range t.outbox.Stranded() {
		checks = append(checks, api.Check{Name: "routes/" + s.Route, Message: fmt.Sprintf(
			"%d deltas wait for workers, which the configuration does not give the route any more: give it workers again until none waits, "+
				"and then resync it, or drop the messages with the subject %s of stream %s", s.Waiting, s.Subject, t.member.conn.Names.Work())})
	}
	return checks
}
