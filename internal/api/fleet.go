package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// FleetStatus is the state of the fleet as one of its members sees it.
type FleetStatus struct {
	Name   string `json:"name"`
	Member string `json:"member"` // the name of this process
	Role   string `json:"role"`   // leader or standby
	Leader string `json:"leader"` // the holder of the Lease; empty: none, or it is not known
	NATS   bool   `json:"nats"`   // there is a connection
	// Unsigned: there are no keys, so the process trusts all that it finds in NATS.
	Unsigned bool `json:"unsigned,omitempty"`
	// Checkpoints and Behind are, on a standby, the checkpoints that it lacks and the seconds since
	// it had all; on the leader, those that NATS lacks.
	Checkpoints uint64   `json:"checkpoints"`
	Behind      *float64 `json:"behind,omitempty"` // nil: not known
	Members     []Member `json:"members"`
}

// Member is a process of a fleet.
type Member struct {
	Name       string    `json:"name"`
	Role       string    `json:"role"` // leader, standby or worker
	Version    string    `json:"version,omitempty"`
	Config     string    `json:"config,omitempty"` // hash of its configuration
	Since      time.Time `json:"since,omitzero"`   // time at which it got the role
	Behind     *float64  `json:"behind,omitempty"` // seconds; of a standby
	Partitions []string  `json:"partitions,omitempty"`
}

// errNoFleet is the answer of an embedded router without Promote.
var errNoFleet = errors.New("this router is in no fleet")

// Mirror describes the state of a standby, which is a copy of the leader's.
type Mirror struct {
	Behind *float64 `json:"behind,omitempty"` // seconds since it had all of the leader's; nil: not known
	Leader string   `json:"leader,omitempty"` // empty: none, or it is not known
}

// String says how old the state is.
func (m *Mirror) String() string {
	text := "standby; it does not know how far it is behind"
	if m.Behind != nil {
		text = fmt.Sprintf("standby; %.1f s behind", *m.Behind)
	}
	if m.Leader != "" {
		text += " the leader, " + m.Leader
	}
	return text
}

// ofStandby are the endpoints that a standby has.
var ofStandby = []string{
	"GET /api/v1/status", "POST /api/v1/promote", "GET /api/v1/sources", "GET /api/v1/sources/{source}",
	"GET /api/v1/sources/{source}/indexes/{index}", "GET /api/v1/deadletters", "GET /api/v1/deadletters/{id}",
}

// mirror describes the state of a standby; nil: the router is none.
func (c *control) mirror() *Mirror {
	if c.Mirror == nil {
		return nil
	}
	m := c.Mirror()
	return &m
}

// Standby describes the state of the standby that has answered last; nil: it was no standby.
func (c *Client) Standby() *Mirror { return c.standby.Load() }

// refuseAsStandby answers a request that only the leader can answer.
func (c *control) refuseAsStandby(w http.ResponseWriter, _ *http.Request) {
	fail(w, http.StatusConflict, c.Standby())
}

func (c *control) promoted(r *http.Request) (any, error) {
	if c.Promote == nil {
		return nil, refuse(http.StatusConflict, errNoFleet)
	}
	return map[string]bool{"asked": true}, refuse(http.StatusUnprocessableEntity, c.Promote(r.Context()))
}

// Promote asks the leader of the fleet to hand over to the router.
func (c *Client) Promote(ctx context.Context) error {
	var done struct{ Asked bool }
	return c.call(ctx, http.MethodPost, "/api/v1/promote", struct{}{}, &done)
}
