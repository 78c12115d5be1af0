package api

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// tapPatience bounds the time that the reader of a tap may take for one line.
const tapPatience = 10 * time.Second

// TapQuery selects the lines of a tap.
type TapQuery struct {
	Route    string // only this route; empty: all routes of the delta's source
	Rejected bool   // also deltas that routes reject
}

// Tapped is the decision of one route about one delta. It contains only the identity of the object.
type Tapped struct {
	Time            time.Time `json:"time"`
	Op              string    `json:"op"`
	Source          string    `json:"source"`
	Key             string    `json:"key"` // namespace/name
	UID             string    `json:"uid,omitempty"`
	ResourceVersion string    `json:"resourceVersion,omitempty"`
	// for a downstream route: type and upstream route of the event, such as pod.broken of
	// broken-pods
	Event string `json:"event,omitempty"`
	Route string `json:"route"`
	// match, no match or error; for a condition: holds, does not hold or error; suppressed or given
	// up
	Verdict string `json:"verdict"`
	// the first part of the condition that is not met, as configured
	Why    string `json:"why,omitempty"`
	At     string `json:"at,omitempty"`     // file:line:column of this part
	Reason string `json:"reason,omitempty"` // the reason for an error
	// the state of the object in the route, as in an [Active]; empty: none
	State string    `json:"state,omitempty"`
	Since time.Time `json:"since,omitzero"` // begin of this state
	Due   time.Time `json:"due,omitzero"`   // time of the report, or of the reminder
	// number of earlier deltas that arrived too fast to be shown
	Missed int64 `json:"missed,omitempty"`
}

// Tap calls show for each line until ctx is done or show returns an error. It must not block the
// flow of deltas. A *[QueryError] is a mistake in the query.
type Tap func(ctx context.Context, q TapQuery, show func(Tapped) error) error

func parseTap(text string) (q TapQuery, err error) {
	values, err := parameters(text, "route", "rejected")
	if err != nil {
		return q, err
	}
	q.Route = values.Get("route")
	if values.Has("rejected") {
		if q.Rejected, err = strconv.ParseBool(values.Get("rejected")); err != nil {
			return q, fmt.Errorf("rejected: %q is neither true nor false", values.Get("rejected"))
		}
	}
	return q, nil
}

// stream writes a line of JSON for each Tapped until the client disconnects or the server closes.
func (c *control) stream(w http.ResponseWriter, r *http.Request) {
	q, err := parseTap(r.URL.RawQuery)
	if err != nil {
		fail(w, http.StatusBadRequest, err)
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	go func() {
		select {
		case <-c.closing:
			cancel()
		case <-ctx.Done():
		}
	}()
	conn, encoder, begun := http.NewResponseController(w), json.NewEncoder(w), false
	err = c.Tap(ctx, q, func(t Tapped) error {
		// Connections without deadlines return an error; it is harmless.
		_ = conn.SetWriteDeadline(time.Now().Add(tapPatience))
		if !begun {
			begun = true
			w.Header().Set("Content-Type", "application/x-ndjson")
			w.Header().Set("X-Content-Type-Options", "nosniff")
		}
		if t != (Tapped{}) { // the first one only makes the answer begin
			if err := encoder.Encode(t); err != nil {
				return err
			}
		}
		return conn.Flush()
	})
	wrong, is := errors.AsType[*QueryError](err)
	switch {
	case begun:
	case is && wrong.Unknown:
		fail(w, http.StatusNotFound, err)
	case err != nil:
		fail(w, http.StatusServiceUnavailable, err)
	}
}

// Tap calls show for each line until ctx is done or show returns an error. An end by the router is
// an error too.
func (c *Client) Tap(ctx context.Context, q TapQuery, show func(Tapped) error) error {
	patient := *c
	patient.http.Timeout = 0
	values := url.Values{"rejected": {strconv.FormatBool(q.Rejected)}}
	if q.Route != "" {
		values.Set("route", q.Route)
	}
	response, err := patient.send(ctx, http.MethodGet, "/api/v1/tap?"+values.Encode(), nil)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		var t Tapped
		if err := json.Unmarshal(lines.Bytes(), &t); err != nil {
			return fmt.Errorf("the answer from %s: %w", c.addr, err)
		}
		if err := show(t); err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return errors.Join(errors.New("the router closed the tap"), lines.Err())
}
